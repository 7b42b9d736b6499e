-- +goose Up
-- What workers have the broker keep of an instance, sealed: one value for each worker. The beginning of a value names its key, so it is
-- stored in a way that lets Postgres read that part alone.
CREATE TABLE broker.kept (
    instance_id text NOT NULL REFERENCES broker.instances (id) ON DELETE CASCADE,
    worker      text NOT NULL,
    sealed      text NOT NULL,
    revision    text NOT NULL,
    PRIMARY KEY (instance_id, worker)
);
ALTER TABLE broker.kept ALTER COLUMN sealed SET STORAGE EXTERNAL;
