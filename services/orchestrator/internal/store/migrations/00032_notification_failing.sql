-- +goose Up

-- When the announcement of a due orchestration failed first; null if it has not failed. A resume resets it.
ALTER TABLE orchestrator.orchestrations ADD COLUMN notification_failing_since timestamptz;
