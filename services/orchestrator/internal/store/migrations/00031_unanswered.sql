-- +goose Up

-- When the last try ended whose requests may still take effect, because nothing has answered it; null nearly everywhere. An instance has
-- the value of its last finished operation. No index covers them.
ALTER TABLE orchestrator.operations ADD COLUMN unanswered_at timestamptz;
ALTER TABLE orchestrator.instances ADD COLUMN unanswered_at timestamptz;
