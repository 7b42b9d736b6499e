-- +goose Up
-- The orders of stages that operations have, which are few: the names, separated by commas. A fact about an operation does not repeat them.
CREATE TABLE broker.stage_orders (
    id     integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stages text NOT NULL UNIQUE
);
ALTER TABLE broker.operations ADD COLUMN stage_order integer;

-- The newest successful operations of a type, for how long they usually take.
CREATE INDEX operations_succeeded ON broker.operations (type, seq DESC) WHERE state = 'succeeded';
