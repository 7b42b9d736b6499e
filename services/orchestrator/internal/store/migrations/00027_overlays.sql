-- +goose Up

-- The overlays that operators have applied. Each change adds a version with all overlays, so a rollback needs no other row.
CREATE TABLE orchestrator.overlay_versions (
    version    bigint PRIMARY KEY CHECK (version > 0),
    action     text NOT NULL CHECK (action IN ('apply', 'remove', 'rollback')),
    -- the overlay that was applied or removed, or the version that was restored
    name       text NOT NULL DEFAULT '',
    restored   bigint NOT NULL DEFAULT 0,
    changed_by text NOT NULL,
    changed_at timestamptz NOT NULL,
    -- a list of objects, sorted by name
    overlays   jsonb NOT NULL
);

-- The definitions that an orchestrator used last for new operations. One that starts uses them if the overlays cannot be combined.
CREATE TABLE orchestrator.current_definitions (
    operation_type text PRIMARY KEY,
    hash           text NOT NULL REFERENCES orchestrator.definitions (hash),
    since          timestamptz NOT NULL
);
