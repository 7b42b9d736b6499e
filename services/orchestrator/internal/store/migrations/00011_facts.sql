-- +goose Up

-- Null where all facts are published, or will be because the message that has caused them comes again: nearly everywhere. Otherwise facts
-- with a greater cursor may not be published. No index covers it, so that it may change with any step.
ALTER TABLE orchestrator.operations ADD COLUMN facts_after integer;
