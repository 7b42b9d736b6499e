-- +goose Up
-- A sealed value is bound to its place and its revision. The revision changes with each value, so that an older value does not
-- open. It is empty for values that were sealed before revisions existed.
ALTER TABLE broker.credentials ADD COLUMN revision text NOT NULL DEFAULT '';
ALTER TABLE broker.updates ADD COLUMN credentials_revision text NOT NULL DEFAULT '';
ALTER TABLE broker.bindings ADD COLUMN revision text NOT NULL DEFAULT '';
