-- +goose Up

-- Operations that ended long ago, each with its request and its history as they were in their tables, without the user. Only
-- questions for one operation read it.
CREATE TABLE orchestrator.archive (
    operation_id uuid PRIMARY KEY,
    finished_at  timestamptz NOT NULL,
    operation    jsonb NOT NULL,
    request      jsonb NOT NULL,
    history      jsonb NOT NULL
);

CREATE INDEX archive_finished ON orchestrator.archive (finished_at);
