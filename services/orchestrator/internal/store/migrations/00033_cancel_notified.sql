-- +goose Up

-- Whether customers were notified of the cancellation, or the orchestrator no longer tries to.
ALTER TABLE orchestrator.orchestrations ADD COLUMN cancel_notified boolean NOT NULL DEFAULT false;
