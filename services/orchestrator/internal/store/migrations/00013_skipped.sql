-- +goose Up

-- The steps of the current stage that an operator has skipped, with the name of the operator; null nearly everywhere. No index covers it, so
-- that it may change with any step.
ALTER TABLE orchestrator.operations ADD COLUMN skipped jsonb;
