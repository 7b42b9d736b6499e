-- +goose Up

-- What a try of a step changed in the saved data: by worker, the previous values of the changed members. The row of a start has an empty
-- object, which shows that the changes of the run are recorded.
ALTER TABLE orchestrator.history
    ADD COLUMN retry_after_ms integer,
    ADD COLUMN saved          jsonb;
