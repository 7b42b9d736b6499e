-- +goose Up
-- Tells of a deprovisioning that it leaves the instance in place, and of a provisioning that it brings the runtime of a
-- suspended instance back.
ALTER TABLE broker.operations ADD COLUMN suspension boolean NOT NULL DEFAULT false;

-- maintenance_version is what the instance has of the plan's maintenance_info; empty is what was there before it was kept.
ALTER TABLE broker.instances
    ADD COLUMN expired_at timestamptz,
    ADD COLUMN maintenance_version text NOT NULL DEFAULT '';

CREATE INDEX instances_trials ON broker.instances ((context ->> 'globalAccountId')) WHERE plan_name = 'trial';

-- What the newest update makes of its instance once it succeeds; until then the instance is as before. Credentials are
-- sealed, by name.
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
