-- +goose Up

-- Pauses of operations. scope is a JSON object whose members must all match an operation and its next step.
CREATE TABLE orchestrator.holds (
    id         uuid PRIMARY KEY,
    scope      jsonb NOT NULL,
    reason     text NOT NULL CHECK (reason <> ''),
    created_by text NOT NULL CHECK (created_by <> ''),
    created_at timestamptz NOT NULL,
    -- null if the hold must be released
    until      timestamptz
);

-- The hold that keeps an operation from starting or from sending its command, and since when; null for almost all operations. The index does
-- not cost an update that changes neither.
ALTER TABLE orchestrator.operations
    ADD COLUMN hold_id    uuid,
    ADD COLUMN held_since timestamptz;
CREATE INDEX operations_held ON orchestrator.operations (hold_id, id) WHERE hold_id IS NOT NULL;
