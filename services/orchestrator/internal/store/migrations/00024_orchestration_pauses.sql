-- +goose Up

-- Pauses, canaries and limits of failures. An older release does not work on orchestrations in the new state.
ALTER TABLE orchestrator.orchestrations DROP CONSTRAINT orchestrations_state_check;
ALTER TABLE orchestrator.orchestrations
    ADD CONSTRAINT orchestrations_state_check
        CHECK (state IN ('pending', 'in progress', 'retrying', 'paused', 'canceling', 'succeeded', 'failed', 'canceled')),
    -- {reason, by, at, from}, where from is the state to resume; null unless the state is paused
    ADD COLUMN pause jsonb,
    -- whether the members outside the canary may be started
    ADD COLUMN canary_passed boolean NOT NULL DEFAULT false,
    -- the failures that an operator has accepted with a resume or a retry
    ADD COLUMN failures_accepted int NOT NULL DEFAULT 0,
    -- the number of members that can be upgraded, when the orchestration started
    ADD COLUMN members int NOT NULL DEFAULT 0,
    ADD COLUMN started_at timestamptz,
    -- when it started or was resumed last
    ADD COLUMN active_since timestamptz,
    -- the members by state of an orchestration that has ended; valid while counted_at is updated_at
    ADD COLUMN counts jsonb,
    ADD COLUMN counted_at timestamptz;

DROP INDEX orchestrator.orchestrations_active;
CREATE INDEX orchestrations_active ON orchestrator.orchestrations (arrived)
    WHERE state IN ('pending', 'in progress', 'retrying', 'paused', 'canceling');

ALTER TABLE orchestrator.orchestration_members ADD COLUMN canary boolean NOT NULL DEFAULT false;
CREATE INDEX orchestration_members_canary ON orchestrator.orchestration_members (orchestration_id) WHERE canary;
CREATE INDEX orchestration_members_failed ON orchestrator.orchestration_members (orchestration_id)
    WHERE state = 'failed' AND retried_as IS NULL;

UPDATE orchestrator.orchestrations o SET counted_at = o.updated_at, counts = COALESCE((
    SELECT jsonb_object_agg(s.state, s.n) FROM (
        SELECT m.state, count(*) AS n FROM orchestrator.orchestration_members m
        WHERE m.orchestration_id = o.id AND m.retried_as IS NULL GROUP BY m.state) s), '{}')
WHERE o.state IN ('succeeded', 'failed', 'canceled');
UPDATE orchestrator.orchestrations SET started_at = created_at, active_since = created_at WHERE state <> 'pending';
