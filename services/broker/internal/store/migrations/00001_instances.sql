-- +goose Up
CREATE TABLE broker.instances (
    id                   text PRIMARY KEY,
    service_id           text NOT NULL,
    plan_id              text NOT NULL,
    plan_name            text NOT NULL,
    context              json NOT NULL,
    runtime              json NOT NULL,
    parameters           json NOT NULL,
    effective_parameters json NOT NULL,
    dashboard_url        text NOT NULL,
    request_hash         text NOT NULL,
    operation_id         text NOT NULL,
    created_at           timestamptz NOT NULL,
    deleted_at           timestamptz
);

-- The read model of operations and, by published_at, their outbox. Facts update a row often: no index covers the columns
-- that change with every step, and pages keep room for the new versions.
CREATE TABLE broker.operations (
    id            text PRIMARY KEY,
    seq           bigint GENERATED ALWAYS AS IDENTITY,
    instance_id   text NOT NULL,
    type          text NOT NULL,
    state         text NOT NULL,
    cursor        bigint NOT NULL DEFAULT 0,
    stage         text NOT NULL DEFAULT '',
    step          text NOT NULL DEFAULT '',
    stage_attempt integer NOT NULL DEFAULT 0,
    step_attempt  integer NOT NULL DEFAULT 0,
    message       text NOT NULL DEFAULT '',
    error         json,
    not_completed text[] NOT NULL DEFAULT '{}',
    superseded_by text NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    heard_at      timestamptz NOT NULL,
    request       json,
    extensions    json NOT NULL DEFAULT '{}',
    published_at  timestamptz
) WITH (fillfactor = 70);

CREATE INDEX operations_instance ON broker.operations (instance_id, seq DESC);
CREATE INDEX operations_unpublished ON broker.operations (seq) WHERE published_at IS NULL;
CREATE INDEX operations_unfinished ON broker.operations (seq) WHERE state IN ('pending', 'in progress');

CREATE TABLE broker.credentials (
    instance_id text NOT NULL REFERENCES broker.instances (id) ON DELETE CASCADE,
    name        text NOT NULL,
    sealed      text NOT NULL,
    PRIMARY KEY (instance_id, name)
);

-- Instances that were removed: a platform that asks for one gets 410.
CREATE TABLE broker.tombstones (
    instance_id text PRIMARY KEY,
    deleted_at  timestamptz NOT NULL
);
CREATE INDEX tombstones_deleted ON broker.tombstones (deleted_at);
