-- +goose Up
-- Marks a deprovisioning that keeps the instance, and a provisioning that recreates the runtime of a suspended instance.
ALTER TABLE broker.operations ADD COLUMN suspension boolean NOT NULL DEFAULT false;

-- maintenance_version is the version of the instance's maintenance_info; it is empty in older rows.
ALTER TABLE broker.instances
    ADD COLUMN expired_at timestamptz,
    ADD COLUMN maintenance_version text NOT NULL DEFAULT '';

CREATE INDEX instances_trials ON broker.instances ((context ->> 'globalAccountId')) WHERE plan_name = 'trial';

-- The new values of the newest update, which apply to its instance once it succeeds. Credentials are sealed, by name.
CREATE TABLE broker.updates (
    instance_id          text PRIMARY KEY REFERENCES broker.instances (id) ON DELETE CASCADE,
    operation_id         text NOT NULL UNIQUE,
    request_hash         text NOT NULL,
    plan_id              text NOT NULL,
    plan_name            text NOT NULL,
    context              json NOT NULL,
    parameters           json NOT NULL,
    effective_parameters json NOT NULL,
    maintenance_version  text NOT NULL,
    credentials          json NOT NULL
);
