-- +goose Up

-- A stage whose memory is lost again and again is repeated every second, which is more than a smallint counts within a day.
ALTER TABLE orchestrator.history ALTER COLUMN stage_attempt TYPE integer;
