-- +goose Up

-- What limits on operations in progress and the turns of global accounts need to know of an operation. Neither changes, and both are cut to
-- 100 characters. They are empty in rows that an earlier release writes.
ALTER TABLE orchestrator.operations
    ADD COLUMN global_account text NOT NULL DEFAULT '',
    ADD COLUMN region         text NOT NULL DEFAULT '';
UPDATE orchestrator.operations o SET
    global_account = COALESCE(left(r.body #>> '{context,globalAccountId}', 100), ''), region = COALESCE(left(r.body #>> '{runtime,region}', 100), '')
FROM orchestrator.requests r WHERE o.state IN ('pending', 'in progress') AND r.operation_id = o.id;

-- The scopes of the limits on operations in progress in the document, as a list of objects of lists.
ALTER TABLE orchestrator.limits ADD COLUMN operation_scopes jsonb NOT NULL DEFAULT '[]';

-- waiting for their turn, in order of arrival within a queue
DROP INDEX orchestrator.operations_pending;
CREATE INDEX operations_pending ON orchestrator.operations (type, global_account, plan, region, arrived) WHERE state = 'pending';
