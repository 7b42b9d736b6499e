-- +goose Up

-- Receivers of events over HTTP.
CREATE TABLE orchestrator.webhooks (
    id              uuid PRIMARY KEY,
    name            text NOT NULL UNIQUE CHECK (name <> ''),
    format          text NOT NULL CHECK (format IN ('cloudevents', 'cloudevents-binary', 'slack')),
    filter          jsonb NOT NULL,
    -- the scheme and the host of the URL. The path of a URL may be a credential, so the URL is sealed together with the secret.
    origin          text NOT NULL,
    sealed          text NOT NULL,
    created_by      text NOT NULL,
    created_at      timestamptz NOT NULL,
    -- what changes
    state           text NOT NULL CHECK (state IN ('active', 'disabled')),
    -- why it is disabled
    reason          text NOT NULL DEFAULT '',
    -- failed attempts since the last successful one, when they began, and the last error
    failures        int NOT NULL DEFAULT 0,
    failing_since   timestamptz,
    error           text NOT NULL DEFAULT '',
    delivered_at    timestamptz,
    -- when the next attempt is due
    due_at          timestamptz NOT NULL
);

-- The events of each webhook, in the order in which they are sent.
CREATE TABLE orchestrator.webhook_deliveries (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    webhook_id   uuid NOT NULL REFERENCES orchestrator.webhooks (id) ON DELETE CASCADE,
    -- the same for every attempt, and for an event that the bus delivers again
    message_id   text NOT NULL,
    -- events of one subject, an operation or an orchestration, are sent in order
    subject      text NOT NULL,
    kind         text NOT NULL,
    -- the CloudEvent as JSON
    event        text NOT NULL,
    created_at   timestamptz NOT NULL,
    -- what changes
    state        text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'failed')),
    attempts     int NOT NULL DEFAULT 0,
    status       int NOT NULL DEFAULT 0,
    error        text NOT NULL DEFAULT '',
    attempted_at timestamptz,
    UNIQUE (webhook_id, message_id)
);

CREATE INDEX webhook_deliveries_waiting ON orchestrator.webhook_deliveries (webhook_id, id) WHERE state = 'waiting';
CREATE INDEX webhook_deliveries_list ON orchestrator.webhook_deliveries (webhook_id, id DESC);
CREATE INDEX webhook_deliveries_ended ON orchestrator.webhook_deliveries (created_at) WHERE state <> 'waiting';

-- The last state of an orchestration that webhooks know. The index has only orchestrations that they do not know yet.
ALTER TABLE orchestrator.orchestrations ADD COLUMN announced text;
UPDATE orchestrator.orchestrations SET announced = state;
CREATE INDEX orchestrations_unannounced ON orchestrator.orchestrations (arrived) WHERE announced IS DISTINCT FROM state;
