-- +goose Up

-- The saved data of an instance (details), and its runtime's id out of it, as the newest operation that ended left them.
-- details_seq is the place of that operation in the order of acceptance.
ALTER TABLE broker.instances
    ADD COLUMN details     json,
    ADD COLUMN details_seq bigint NOT NULL DEFAULT 0,
    ADD COLUMN runtime_id  text   NOT NULL DEFAULT '';

-- What of a request is still shown when the request itself is gone.
ALTER TABLE broker.operations
    ADD COLUMN orchestration_id text NOT NULL DEFAULT '',
    ADD COLUMN runtime_version  text NOT NULL DEFAULT '';

-- The list of runtimes: a row per instance, also for one that is gone as long as its operations are kept, with everything
-- that the list is filtered by. It holds nothing personal. broker.refresh_runtimes is the only writer.
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
-- The state of a runtime by facts/keb.md 1.9, empty when no operation is known. What was provisioned or removed last decides;
-- when that is a provisioning that succeeded, the newest update or upgrade since, unless it waits or was cancelled.
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
-- Brings the rows of instances up to date with broker.instances and broker.operations. Whoever changes one of those calls it
-- last in the same transaction: its locks come after all others, in the order of ids, and it sees what was committed
-- before it got them.
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
    -- An instance that is gone keeps what is known of it, also the id that its runtime had.
    UPDATE broker.runtimes r SET state = v.state
        FROM (SELECT u.id, broker.runtime_state(u.id, false) AS state FROM unnest(ids) AS u (id)
            WHERE NOT EXISTS (SELECT FROM broker.instances i WHERE i.id = u.id)) v
        WHERE r.instance_id = v.id AND v.state NOT IN ('', r.state);
END $$;
-- +goose StatementEnd

SELECT broker.refresh_runtimes(ARRAY(SELECT id FROM broker.instances));
