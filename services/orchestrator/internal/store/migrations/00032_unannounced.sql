-- +goose Up

-- When the announcement of a due orchestration failed first; null if it did not fail, or since the orchestration was resumed.
ALTER TABLE orchestrator.orchestrations ADD COLUMN unannounced_since timestamptz;
