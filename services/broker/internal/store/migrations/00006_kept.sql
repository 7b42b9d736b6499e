-- +goose Up
-- Sealed values that the broker keeps for workers: one per instance and worker. A value begins with the id of its key; the column is
-- stored so that Postgres can read that part alone.
CREATE TABLE broker.kept (
    instance_id text NOT NULL REFERENCES broker.instances (id) ON DELETE CASCADE,
    worker      text NOT NULL,
    sealed      text NOT NULL,
    revision    text NOT NULL,
    PRIMARY KEY (instance_id, worker)
);
ALTER TABLE broker.kept ALTER COLUMN sealed SET STORAGE EXTERNAL;
