-- +goose Up

-- Rows that arrived together are changed together: each commit writes a new version of many rows of one page, while the last one of
-- each may still be read. With less room than that, versions go to other pages, and all indexes get an entry for them.
-- It holds for pages that are written from now on; nothing is rewritten.
ALTER TABLE orchestrator.operations SET (fillfactor = 50);

-- Null where it is first_tried_at, which is nearly everywhere: what a step changes lies close together, and Postgres logs what lies
-- between the first and the last byte that an update changes.
COMMENT ON COLUMN orchestrator.operations.sent_at IS 'null when it is first_tried_at';
