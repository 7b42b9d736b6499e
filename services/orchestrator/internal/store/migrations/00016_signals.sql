-- +goose Up

-- Events from outside, for the operations that wait for their keys. A delivered event stays without its data, so that a repetition is
-- recognized.
CREATE TABLE orchestrator.signals (
    n            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key          text NOT NULL,
    source       text NOT NULL,
    id           text NOT NULL,
    received_at  timestamptz NOT NULL,
    -- not jsonb, which changes numbers and has no character NUL
    data         json,
    operation_id uuid,
    delivered_at timestamptz,
    UNIQUE (key, source, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX signals_undelivered ON orchestrator.signals (key, n) WHERE delivered_at IS NULL;
CREATE INDEX signals_received ON orchestrator.signals (received_at);

-- The key of the event that the last try of the step condition_step waits for, and the events that came for steps of the current stage, by step
-- name. Null for almost all operations. The index does not cost an update that changes neither event_key nor due_at.
ALTER TABLE orchestrator.operations
    ADD COLUMN event_key text,
    ADD COLUMN events    json;
CREATE INDEX operations_event ON orchestrator.operations (event_key) WHERE event_key IS NOT NULL AND due_at IS NOT NULL;
