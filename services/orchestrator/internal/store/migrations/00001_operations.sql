-- +goose Up

-- What was requested; it never changes. Kept apart so that the row that changes with every step stays small.
CREATE TABLE orchestrator.requests (
    operation_id uuid PRIMARY KEY,
    body         jsonb NOT NULL,
    definition   text  NOT NULL,
    -- W3C trace context of the request, carried by every event of the operation
    traceparent  text
);

-- Process definitions by content hash; an operation keeps the one it was requested under.
CREATE TABLE orchestrator.definitions (
    hash           text PRIMARY KEY,
    operation_type text NOT NULL,
    body           text NOT NULL,
    created_at     timestamptz NOT NULL
);

-- One row per operation: its position, attempts, cursor, saved data and its one timer. The row is its own outbox: it
-- is committed with its next command already decided.
-- No index may cover a column that changes with every step, so that these updates stay heap-only: due_at is set only
-- while an operation waits, execute_before only while a command is out.
CREATE TABLE orchestrator.operations (
    id             uuid PRIMARY KEY,
    arrived        bigint GENERATED ALWAYS AS IDENTITY,
    type           text NOT NULL,
    instance_id    text NOT NULL,
    plan           text NOT NULL,
    created_at     timestamptz NOT NULL,
    -- what changes
    state          text NOT NULL CHECK (state IN ('pending', 'in progress', 'succeeded', 'failed', 'cancelled')),
    version        integer NOT NULL,
    cursor         integer NOT NULL,
    stage          integer NOT NULL,
    step           integer NOT NULL,
    stage_attempt  integer NOT NULL,
    step_attempt   integer NOT NULL,
    dispatch       integer NOT NULL,
    stage_memory   boolean NOT NULL,
    first_tried_at timestamptz,
    execute_before timestamptz,
    due_at         timestamptz,
    started_at     timestamptz,
    finished_at    timestamptz,
    deadline       timestamptz,
    tries          jsonb,
    not_completed  text[],
    completed      text[],
    cancel_reason  text,
    message        text,
    error          jsonb,
    details        jsonb
) WITH (fillfactor = 70, toast_tuple_target = 512, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- waiting for a time
CREATE INDEX operations_due ON orchestrator.operations (due_at) WHERE due_at IS NOT NULL;
-- a command is out
CREATE INDEX operations_in_flight ON orchestrator.operations (id) WHERE state = 'in progress' AND due_at IS NULL;
-- waiting for their turn, in order of arrival
CREATE INDEX operations_pending ON orchestrator.operations (type, arrived) WHERE state = 'pending';
-- one operation in progress per instance
CREATE UNIQUE INDEX operations_in_progress ON orchestrator.operations (instance_id) INCLUDE (type) WHERE state = 'in progress';
CREATE INDEX operations_instance ON orchestrator.operations (instance_id, arrived);
CREATE INDEX operations_arrived ON orchestrator.operations (arrived);

-- The serialization point of an instance: who runs, how many wait, and what the last finished operation has saved.
CREATE TABLE orchestrator.instances (
    instance_id text PRIMARY KEY,
    running     uuid,
    waiting     integer NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    details     jsonb,
    -- steps that the last deprovisioning has completed, while others of it have not
    completed   text[]
) WITH (fillfactor = 70, toast_tuple_target = 512, autovacuum_vacuum_scale_factor = 0.02);

-- Every transition worth showing. Step rows have the outcome of the step as their kind.
CREATE TABLE orchestrator.history (
    operation_id   uuid NOT NULL,
    cursor         integer NOT NULL,
    stage          smallint NOT NULL,
    step           smallint NOT NULL,
    stage_attempt  smallint NOT NULL,
    step_attempt   integer NOT NULL,
    started_at     timestamptz NOT NULL,
    finished_at    timestamptz NOT NULL,
    kind           text NOT NULL,
    worker_version text,
    message        text,
    error          jsonb,
    PRIMARY KEY (operation_id, cursor)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.5);
