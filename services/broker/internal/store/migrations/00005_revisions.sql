-- +goose Up
-- What a sealed value is bound to besides its place: another one with each change, so that an older value put back does not open.
-- Empty is what was sealed before there were revisions.
ALTER TABLE broker.credentials ADD COLUMN revision text NOT NULL DEFAULT '';
ALTER TABLE broker.updates ADD COLUMN credentials_revision text NOT NULL DEFAULT '';
ALTER TABLE broker.bindings ADD COLUMN revision text NOT NULL DEFAULT '';
