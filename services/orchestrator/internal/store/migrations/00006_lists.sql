-- +goose Up

-- For lists, newest first, of very many operations. These indexes cover what is fixed when an operation arrives, or changes when it
-- starts and ends, but nothing that changes with a step: the updates of a step stay heap-only.
CREATE INDEX operations_created ON orchestrator.operations (created_at, arrived);
DROP INDEX orchestrator.operations_arrived;
CREATE INDEX operations_unfinished ON orchestrator.operations (created_at, arrived) WHERE state IN ('pending', 'in progress');
CREATE INDEX operations_ended ON orchestrator.operations (state, created_at, arrived) INCLUDE (type)
    WHERE state IN ('succeeded', 'failed', 'cancelled');
CREATE INDEX operations_type ON orchestrator.operations (type, created_at, arrived);
CREATE INDEX operations_plan ON orchestrator.operations (plan, created_at, arrived);
CREATE INDEX operations_finished ON orchestrator.operations (finished_at) WHERE finished_at IS NOT NULL;

-- Search: the beginning of an id of an instance, and what a request says about its customer. A request does not change, but for the
-- user that is forgotten.
CREATE INDEX operations_instance_prefix ON orchestrator.operations (instance_id text_pattern_ops);
CREATE INDEX requests_subaccount ON orchestrator.requests ((body #>> '{context,subaccountId}'));
CREATE INDEX requests_global_account ON orchestrator.requests ((body #>> '{context,globalAccountId}'));
CREATE INDEX requests_shoot ON orchestrator.requests ((body #>> '{runtime,shootName}'));
-- which definition an operation runs by, without a look at its request
ALTER TABLE orchestrator.requests DROP CONSTRAINT requests_pkey,
    ADD CONSTRAINT requests_pkey PRIMARY KEY (operation_id) INCLUDE (definition);

-- What has ended, minute by minute: executions of steps by outcome, and operations (worker and step are empty) by state; 'started'
-- counts those that began. Each orchestrator adds what it has counted every few seconds.
CREATE TABLE orchestrator.tally (
    minute  timestamptz NOT NULL,
    type    text NOT NULL,
    worker  text NOT NULL,
    step    text NOT NULL,
    outcome text NOT NULL,
    n       bigint NOT NULL,
    PRIMARY KEY (minute, type, worker, step, outcome)
) WITH (fillfactor = 70);
