-- +goose Up

-- The document with the limits, in YAML. It has at most one row.
CREATE TABLE orchestrator.limits (
    id         boolean PRIMARY KEY DEFAULT true CHECK (id),
    version    bigint NOT NULL,
    document   text NOT NULL,
    applied_by text NOT NULL CHECK (applied_by <> ''),
    applied_at timestamptz NOT NULL
);
