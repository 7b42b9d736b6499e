-- +goose Up

-- The document with the limits, in YAML. It has at most one row.
CREATE TABLE orchestrator.limits (
    id         boolean PRIMARY KEY DEFAULT true CHECK (id),
    version    bigint NOT NULL,
    document   text NOT NULL,
    applied_by text NOT NULL CHECK (applied_by <> ''),
    applied_at timestamptz NOT NULL
);

-- The limit that has no room for the decided command of an operation, since when the command waits, and the limits in which the command in
-- flight counts; null for almost all operations. The indexes do not cost an update that changes none of them.
-- turn is the place in the queue, null for a command that has just arrived; turns has the places in other queues, by queue.
ALTER TABLE orchestrator.operations
    ADD COLUMN queue         text,
    ADD COLUMN limited_since timestamptz,
    ADD COLUMN turn          double precision,
    ADD COLUMN turns         jsonb,
    ADD COLUMN granted       text[];
CREATE INDEX operations_limited ON orchestrator.operations (queue, starts_with(type, 'upgrade'), turn, id) WHERE queue IS NOT NULL;
CREATE INDEX operations_granted ON orchestrator.operations (id) WHERE granted IS NOT NULL;

-- The first free place of a global account in a queue. upgrade separates upgrades, which wait behind the others.
CREATE TABLE orchestrator.limit_turns (
    queue          text NOT NULL,
    upgrade        boolean NOT NULL,
    global_account text NOT NULL,
    turn           double precision NOT NULL,
    PRIMARY KEY (queue, upgrade, global_account)
) WITH (fillfactor = 70);

-- When the next command may begin, without a burst, for limits with a rate.
CREATE TABLE orchestrator.limit_rates (
    key     text PRIMARY KEY,
    next_at timestamptz NOT NULL
) WITH (fillfactor = 70);
