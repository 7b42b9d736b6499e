-- +goose Up

-- details is the saved data of the instance's newest ended operation, and runtime_id the id in it. details_seq is the position
-- of that operation in the order of acceptance.
ALTER TABLE broker.instances
    ADD COLUMN details     json,
    ADD COLUMN details_seq bigint NOT NULL DEFAULT 0,
    ADD COLUMN runtime_id  text   NOT NULL DEFAULT '';

-- The parts of a request that are shown after the request is erased.
ALTER TABLE broker.operations
    ADD COLUMN orchestration_id text NOT NULL DEFAULT '',
    ADD COLUMN runtime_version  text NOT NULL DEFAULT '';

-- The list of runtimes has a row per instance, also for a removed one while its operations are kept. It contains all columns
-- that filter the list, and no personal data. broker.refresh_runtimes is the only writer.
CREATE TABLE broker.runtimes (
    instance_id             text PRIMARY KEY,
    runtime_id              text NOT NULL DEFAULT '',
    state                   text NOT NULL,
    service_id              text NOT NULL,
    plan_id                 text NOT NULL,
    plan_name               text NOT NULL,
    global_account_id       text NOT NULL,
    subscription_account_id text NOT NULL,
    subaccount_id           text NOT NULL,
    platform_region         text NOT NULL,
    region                  text NOT NULL,
    provider                text NOT NULL,
    shoot_name              text NOT NULL,
    expired_at              timestamptz,
    created_at              timestamptz NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX runtimes_created ON broker.runtimes (created_at, instance_id) INCLUDE (state);
CREATE INDEX runtimes_state ON broker.runtimes (state, created_at, instance_id);
CREATE INDEX runtimes_plan ON broker.runtimes (plan_name, created_at, instance_id) INCLUDE (state);
CREATE INDEX runtimes_region ON broker.runtimes (region, created_at, instance_id) INCLUDE (state);
CREATE INDEX runtimes_account ON broker.runtimes (global_account_id);
CREATE INDEX runtimes_subaccount ON broker.runtimes (subaccount_id);
CREATE INDEX runtimes_runtime ON broker.runtimes (runtime_id) WHERE runtime_id <> '';
CREATE INDEX runtimes_shoot ON broker.runtimes (shoot_name);
CREATE INDEX runtimes_expired ON broker.runtimes (created_at, instance_id) WHERE expired_at IS NOT NULL;

-- +goose StatementBegin
-- Returns the state of a runtime (docs/contracts/broker.md#list-of-runtimes), or '' if no operation is known. The newest
-- provisioning or deprovisioning decides. After a successful provisioning, a newer update or upgrade decides, unless it is
-- pending or was cancelled.
CREATE FUNCTION broker.runtime_state(instance text, deleted boolean) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    life  record;
    since record;
BEGIN
    -- Index operations_instance.
    SELECT o.type, o.state, o.suspension, o.seq INTO life FROM broker.operations o
        WHERE o.instance_id = instance AND o.type IN ('provision', 'deprovision') ORDER BY o.seq DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN '';
    END IF;
    IF life.type = 'deprovision' THEN
        RETURN CASE
            WHEN life.state IN ('pending', 'in progress') THEN 'deprovisioning'
            WHEN deleted THEN 'deprovisionincomplete'
            WHEN life.state <> 'succeeded' THEN 'failed'
            WHEN life.suspension THEN 'suspended'
            ELSE 'deprovisioned' END;
    END IF;
    IF life.state <> 'succeeded' THEN
        RETURN CASE WHEN life.state IN ('pending', 'in progress') THEN 'provisioning' ELSE 'failed' END;
    END IF;
    SELECT o.type, o.state INTO since FROM broker.operations o
        WHERE o.instance_id = instance AND o.seq > life.seq AND o.state NOT IN ('pending', 'cancelled') ORDER BY o.seq DESC LIMIT 1;
    RETURN CASE
        WHEN NOT FOUND THEN 'succeeded'
        WHEN since.state = 'failed' THEN 'error'
        WHEN since.state = 'succeeded' THEN 'succeeded'
        WHEN since.type = 'update' THEN 'updating'
        ELSE 'upgrading' END;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Updates the rows of instances from broker.instances and broker.operations. A transaction that changes one of those calls it
-- as its last statement. Its locks follow all others, in the order of ids, and it sees everything that was committed before
-- it got them.
CREATE FUNCTION broker.refresh_runtimes(ids text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM broker.runtimes r WHERE r.instance_id = ANY (ids) ORDER BY r.instance_id FOR UPDATE;
    INSERT INTO broker.runtimes AS r (instance_id, runtime_id, state, service_id, plan_id, plan_name, global_account_id,
            subscription_account_id, subaccount_id, platform_region, region, provider, shoot_name, expired_at, created_at)
        SELECT i.id, i.runtime_id, broker.runtime_state(i.id, i.deleted_at IS NOT NULL), i.service_id, i.plan_id, i.plan_name,
            coalesce(i.context ->> 'globalAccountId', ''),
            coalesce(i.context ->> 'subscriptionGlobalAccountId', i.context ->> 'globalAccountId', ''),
            coalesce(i.context ->> 'subaccountId', ''), coalesce(i.context ->> 'platformRegion', ''),
            coalesce(i.runtime ->> 'region', ''), coalesce(i.runtime ->> 'provider', ''), coalesce(i.runtime ->> 'shootName', ''),
            i.expired_at, i.created_at
        FROM broker.instances i WHERE i.id = ANY (ids) ORDER BY i.id
        ON CONFLICT (instance_id) DO UPDATE SET
            runtime_id = excluded.runtime_id, state = excluded.state, service_id = excluded.service_id,
            plan_id = excluded.plan_id, plan_name = excluded.plan_name, global_account_id = excluded.global_account_id,
            subscription_account_id = excluded.subscription_account_id, subaccount_id = excluded.subaccount_id,
            platform_region = excluded.platform_region, region = excluded.region, provider = excluded.provider,
            shoot_name = excluded.shoot_name, expired_at = excluded.expired_at, created_at = excluded.created_at
        WHERE r.* IS DISTINCT FROM excluded.*;
    -- A removed instance keeps its known values, including the id of its last runtime.
    UPDATE broker.runtimes r SET state = v.state
        FROM (SELECT u.id, broker.runtime_state(u.id, false) AS state FROM unnest(ids) AS u (id)
            WHERE NOT EXISTS (SELECT FROM broker.instances i WHERE i.id = u.id)) v
        WHERE r.instance_id = v.id AND v.state NOT IN ('', r.state);
END $$;
-- +goose StatementEnd

SELECT broker.refresh_runtimes(ARRAY(SELECT id FROM broker.instances));
