-- +goose Up

-- The key of the group of similar errors that the error of an operation belongs to; null without an error, and in rows that an earlier release
-- has written. No index covers it, so that it may change with any step.
ALTER TABLE orchestrator.operations ADD COLUMN error_group text;

-- What ended recently, by state.
CREATE INDEX operations_ended_at ON orchestrator.operations (state, finished_at) WHERE state IN ('succeeded', 'failed', 'cancelled');
