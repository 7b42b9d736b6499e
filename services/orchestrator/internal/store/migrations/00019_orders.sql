-- +goose Up

-- What happens to new orders in the scope of a hold: they wait, or the broker rejects them. An older release creates holds that wait.
ALTER TABLE orchestrator.holds ADD COLUMN orders text NOT NULL DEFAULT 'wait' CHECK (orders IN ('wait', 'reject'));
