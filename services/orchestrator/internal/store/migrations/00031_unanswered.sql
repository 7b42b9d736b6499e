-- +goose Up

-- When the last try ended whose requests may still take effect, because nothing has answered it; null nearly everywhere. An instance has
-- the value of its last finished operation. No index covers them.
ALTER TABLE orchestrator.operations ADD COLUMN unanswered_at timestamptz;
ALTER TABLE orchestrator.instances ADD COLUMN unanswered_at timestamptz;

-- Whether the instance is deprovisioned, and only kept for another deprovisioning. A new order with its id has nothing of it.
ALTER TABLE orchestrator.instances ADD COLUMN removed boolean;
