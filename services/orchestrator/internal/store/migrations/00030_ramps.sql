-- +goose Up

-- Rules of operators that send operations to a version of a worker.
CREATE TABLE orchestrator.ramps (
    id         uuid PRIMARY KEY,
    worker     text NOT NULL CHECK (worker <> ''),
    version    text NOT NULL CHECK (version <> ''),
    percent    int NOT NULL CHECK (percent BETWEEN 1 AND 100),
    -- the scope of a hold; empty for all operations
    scope      jsonb NOT NULL,
    reason     text NOT NULL CHECK (reason <> ''),
    created_by text NOT NULL CHECK (created_by <> ''),
    created_at timestamptz NOT NULL,
    -- set by its removal; the row is deleted once its commands have gone to other replicas
    removed_at timestamptz
);
