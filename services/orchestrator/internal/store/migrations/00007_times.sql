-- +goose Up

-- When the current stage began, and when the command that is out was sent for the first time: how long a stage took, and since
-- when a step waits for a worker. Null in rows that an earlier release has started.
ALTER TABLE orchestrator.operations
    ADD COLUMN stage_started_at timestamptz,
    ADD COLUMN sent_at          timestamptz;
