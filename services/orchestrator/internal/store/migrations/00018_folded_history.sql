-- +goose Up

-- A row of the history may stand for several tries of a step: the other columns belong to the last one, these to the first. They are null
-- in the row of a single try, which is nearly every row. The rows of the other tries are deleted.
ALTER TABLE orchestrator.history
    ADD COLUMN tries               integer,
    ADD COLUMN first_cursor        integer,
    ADD COLUMN first_stage_attempt integer,
    ADD COLUMN first_step_attempt  integer,
    ADD COLUMN first_started_at    timestamptz,
    -- whether the tries had different messages, of which only the last one is kept
    ADD COLUMN similar_messages    boolean;
