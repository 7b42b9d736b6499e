-- +goose Up

-- Actions of an operator on many operations.
CREATE TABLE orchestrator.batches (
    id         uuid PRIMARY KEY,
    arrived    bigint GENERATED ALWAYS AS IDENTITY,
    action     text NOT NULL CHECK (action IN ('retry', 'cancel', 'skip')),
    -- the stage to retry from, or the step to skip
    stage      text NOT NULL,
    step       text NOT NULL,
    -- the query of the list of operations
    filter     text NOT NULL,
    reason     text NOT NULL CHECK (reason <> ''),
    created_by text NOT NULL CHECK (created_by <> ''),
    created_at timestamptz NOT NULL,
    -- operations per second; 0 for no limit
    rate       double precision NOT NULL,
    total      int NOT NULL,
    -- what changes
    state      text NOT NULL CHECK (state IN ('running', 'paused', 'finished', 'cancelled')),
    done       int NOT NULL DEFAULT 0,
    failed     int NOT NULL DEFAULT 0,
    skipped    int NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL,
    -- when the next operations are due
    due_at     timestamptz NOT NULL
);

CREATE INDEX batches_arrived ON orchestrator.batches (arrived);
CREATE INDEX batches_running ON orchestrator.batches (arrived) WHERE state = 'running';

-- The operations of a batch, which are fixed when it is ordered, with the result of each.
CREATE TABLE orchestrator.batch_members (
    batch_id     uuid NOT NULL REFERENCES orchestrator.batches (id) ON DELETE CASCADE,
    position     int NOT NULL,
    operation_id uuid NOT NULL,
    instance_id  text NOT NULL,
    -- what changes
    state        text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'done', 'failed', 'skipped')),
    error        text NOT NULL DEFAULT '',
    at           timestamptz,
    PRIMARY KEY (batch_id, position)
);

CREATE INDEX batch_members_waiting ON orchestrator.batch_members (batch_id, position) WHERE state = 'waiting';
