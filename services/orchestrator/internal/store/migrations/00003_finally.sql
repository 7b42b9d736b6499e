-- +goose Up

-- How an operation ends once its finally stage is over; null for nearly every row.
ALTER TABLE orchestrator.operations ADD COLUMN ending jsonb;
