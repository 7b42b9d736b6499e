-- +goose Up

-- Ended orchestrations, for their deletion.
CREATE INDEX orchestrations_ended ON orchestrator.orchestrations (updated_at) WHERE state IN ('succeeded', 'failed', 'canceled');
