-- +goose Up

-- Search by the beginning of a value, whatever the collation of the database. These indexes serve equality, too.
DROP INDEX broker.runtimes_account;
DROP INDEX broker.runtimes_subaccount;
DROP INDEX broker.runtimes_runtime;
DROP INDEX broker.runtimes_shoot;
CREATE INDEX runtimes_account ON broker.runtimes (global_account_id text_pattern_ops);
CREATE INDEX runtimes_subaccount ON broker.runtimes (subaccount_id text_pattern_ops);
CREATE INDEX runtimes_runtime ON broker.runtimes (runtime_id text_pattern_ops) WHERE runtime_id <> '';
CREATE INDEX runtimes_shoot ON broker.runtimes (shoot_name text_pattern_ops);
CREATE INDEX runtimes_instance ON broker.runtimes (instance_id text_pattern_ops);
CREATE INDEX instances_runtime_name ON broker.instances (lower(runtime ->> 'name') text_pattern_ops);
