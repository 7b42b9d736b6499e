-- +goose Up

-- The end of the last try with a request that got no answer and may still take effect; null nearly everywhere. An instance has the value of
-- its last finished operation. No index covers them.
ALTER TABLE orchestrator.operations ADD COLUMN unanswered_at timestamptz;
ALTER TABLE orchestrator.instances ADD COLUMN unanswered_at timestamptz;

-- Whether the instance is deprovisioned and kept only to be deprovisioned again. A new order with its id gets none of its data.
ALTER TABLE orchestrator.instances ADD COLUMN removed boolean;
