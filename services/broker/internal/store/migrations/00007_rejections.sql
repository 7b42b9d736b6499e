-- +goose Up
-- The last known holds that reject orders, as the orchestrator answered: one row with a JSON array.
CREATE TABLE broker.rejections (
    singleton  boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    rejections jsonb NOT NULL
);
