-- +goose Up

-- The list of operations that succeeded without some of their steps. not_completed changes only with a step that is left out, so that the
-- updates of other steps stay heap-only.
CREATE INDEX operations_incomplete ON orchestrator.operations (created_at, arrived) WHERE state = 'succeeded' AND not_completed IS NOT NULL;

-- What a cancelled operation failed at when it was cancelled; null nearly everywhere. No index covers it.
ALTER TABLE orchestrator.operations ADD COLUMN cause jsonb;

-- How long a command waited for its worker; null for less than a moment.
ALTER TABLE orchestrator.history ADD COLUMN queued_ms integer;
