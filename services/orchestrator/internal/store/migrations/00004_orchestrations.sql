-- +goose Up

-- Upgrades of many runtimes.
CREATE TABLE orchestrator.orchestrations (
    id          uuid PRIMARY KEY,
    arrived     bigint GENERATED ALWAYS AS IDENTITY,
    type        text NOT NULL CHECK (type IN ('upgradeKyma', 'upgradeCluster')),
    parameters  jsonb NOT NULL,
    created_at  timestamptz NOT NULL,
    -- what changes
    state       text NOT NULL CHECK (state IN ('pending', 'in progress', 'retrying', 'canceling', 'succeeded', 'failed', 'canceled')),
    description text NOT NULL,
    updated_at  timestamptz NOT NULL,
    -- when the targets are looked up next; null once it has begun
    due_at      timestamptz
);

CREATE INDEX orchestrations_arrived ON orchestrator.orchestrations (arrived);
CREATE INDEX orchestrations_active ON orchestrator.orchestrations (arrived)
    WHERE state IN ('pending', 'in progress', 'retrying', 'canceling');

-- The instances of an orchestration, each with the operation on it. The id of the operation is chosen here, before the broker
-- is asked for it. A member that was retried stays, with the operation that has taken its place.
CREATE TABLE orchestrator.orchestration_members (
    operation_id      uuid PRIMARY KEY,
    orchestration_id  uuid NOT NULL REFERENCES orchestrator.orchestrations (id),
    instance_id       text NOT NULL,
    runtime_id        text NOT NULL,
    global_account_id text NOT NULL,
    subaccount_id     text NOT NULL,
    plan_id           text NOT NULL,
    plan_name         text NOT NULL,
    shoot_name        text NOT NULL,
    -- {days, begin, end}; null when windows do not matter
    window_rule       jsonb,
    -- what changes
    state             text NOT NULL
        CHECK (state IN ('pending', 'in progress', 'retrying', 'succeeded', 'failed', 'canceled', 'skipped')),
    description       text NOT NULL,
    due_at            timestamptz NOT NULL,
    window_begin      timestamptz,
    window_end        timestamptz,
    -- when the broker was asked last, and whether it has confirmed
    asked_at          timestamptz,
    recorded          boolean NOT NULL DEFAULT false,
    retried_as        uuid,
    updated_at        timestamptz NOT NULL
);

-- one operation per instance that counts
CREATE UNIQUE INDEX orchestration_members_current ON orchestrator.orchestration_members (orchestration_id, instance_id)
    WHERE retried_as IS NULL;
CREATE INDEX orchestration_members_list ON orchestrator.orchestration_members (orchestration_id, operation_id);
CREATE INDEX orchestration_members_waiting ON orchestrator.orchestration_members (orchestration_id, due_at, operation_id)
    WHERE state IN ('pending', 'retrying');
CREATE INDEX orchestration_members_in_progress ON orchestrator.orchestration_members (orchestration_id) WHERE state = 'in progress';
-- the newest upgrade of an instance
CREATE INDEX orchestration_members_instance ON orchestrator.orchestration_members (instance_id, operation_id);
