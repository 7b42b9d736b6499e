-- +goose Up

-- By how much the worker has extended the limit of the command in flight; null nearly everywhere. No index covers it.
ALTER TABLE orchestrator.operations ADD COLUMN extended_ms integer;
