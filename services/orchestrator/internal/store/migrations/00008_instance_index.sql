-- +goose Up

-- One index finds the operations of an instance, by its id or by the beginning of it. There were two, and a retry, whose due_at is
-- indexed, costs each index of the table an entry.
DROP INDEX orchestrator.operations_instance;
DROP INDEX orchestrator.operations_instance_prefix;
CREATE INDEX operations_instance ON orchestrator.operations (instance_id text_pattern_ops, arrived);
