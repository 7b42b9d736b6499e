-- +goose Up

-- What operators have asked for. A row is written before the action begins, with outcome 'begun', and gets its outcome after it:
-- one that stays 'begun' belongs to an orchestrator that ended in between. Nothing refers to an operation here, so that a row
-- outlives it.
CREATE TABLE orchestrator.actions (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at             timestamptz NOT NULL,
    -- who: the name that was shown, and what the issuer of an OIDC token calls the same subject
    name           text NOT NULL,
    subject        text NOT NULL,
    role           text NOT NULL,
    authentication text NOT NULL CHECK (authentication IN ('none', 'token', 'oidc')),
    -- what, for example 'skip', on the operation or orchestration 'target', for example its step
    action         text NOT NULL,
    target         text NOT NULL,
    detail         text NOT NULL,
    -- what came of it
    outcome        text NOT NULL CHECK (outcome IN ('begun', 'done', 'refused', 'failed')),
    reason         text NOT NULL
);

CREATE INDEX actions_at ON orchestrator.actions (at);
CREATE INDEX actions_target ON orchestrator.actions (target, id);
