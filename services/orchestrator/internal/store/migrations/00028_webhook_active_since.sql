-- +goose Up

-- When a webhook was created or last enabled. It gets no facts from before. The default is for orchestrators that do not set the column yet.
ALTER TABLE orchestrator.webhooks ADD COLUMN active_since timestamptz NOT NULL DEFAULT now();
UPDATE orchestrator.webhooks SET active_since = created_at;
