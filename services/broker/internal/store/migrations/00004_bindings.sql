-- +goose Up
-- Service bindings. A row is inserted before the access in the runtime is created, and deleted after the access is removed, so
-- every access has a row. The process that works on the access holds the claim until claimed_until. due_at is when the
-- clean-up checks the row: when the binding expires, is revoked, or was never finished.
CREATE TABLE broker.bindings (
    instance_id        text NOT NULL REFERENCES broker.instances (id) ON DELETE CASCADE,
    id                 text NOT NULL,
    subscription       text NOT NULL,
    runtime_id         text NOT NULL,
    expiration_seconds integer NOT NULL,
    predecessor        text NOT NULL DEFAULT '',
    created_at         timestamptz NOT NULL,
    expires_at         timestamptz NOT NULL,
    -- made_at is null until the access is created. sealed is its kubeconfig, empty before that and after a revocation.
    made_at            timestamptz,
    sealed             text NOT NULL DEFAULT '',
    revoked_at         timestamptz,
    claim              text NOT NULL DEFAULT '',
    claimed_until      timestamptz NOT NULL,
    due_at             timestamptz NOT NULL,
    PRIMARY KEY (instance_id, id)
);
CREATE INDEX bindings_due ON broker.bindings (due_at);

-- Bindings that were removed: a platform that asks for one gets 410.
CREATE TABLE broker.removed_bindings (
    instance_id text NOT NULL REFERENCES broker.instances (id) ON DELETE CASCADE,
    id          text NOT NULL,
    removed_at  timestamptz NOT NULL,
    PRIMARY KEY (instance_id, id)
);
CREATE INDEX removed_bindings_removed ON broker.removed_bindings (removed_at);
