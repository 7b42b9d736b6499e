-- +goose Up

-- The cursor of the command in flight if the command was sent again and the cursor has grown since; null nearly everywhere.
-- How the last try of a step of the current stage went, and since when; null if no step is tried again. No index covers them, so that they may
-- change with any step.
ALTER TABLE orchestrator.operations
    ADD COLUMN command_cursor  integer,
    ADD COLUMN condition       text,
    ADD COLUMN condition_step  integer,
    ADD COLUMN condition_since timestamptz;
