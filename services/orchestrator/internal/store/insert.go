package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jmoiron/sqlx"
)

const insertSQL = `
WITH v AS (
    SELECT * FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::text[], $7::text[], $8::text[]
    ) WITH ORDINALITY AS v(id, type, instance_id, plan, created_at, body, definition, traceparent, n)
), r AS (
    INSERT INTO orchestrator.requests (operation_id, body, definition, traceparent)
    SELECT id, body::jsonb, definition, traceparent FROM v
)
INSERT INTO orchestrator.operations
    (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt, dispatch, stage_memory)
SELECT id, type, instance_id, plan, created_at, 'pending', 0, 0, 0, 0, 0, 0, 0, false FROM v ORDER BY n`

// InsertTx stores new operations as pending, in this order of arrival. Their version is 0 afterwards.
func (s *Store) InsertTx(ctx context.Context, tx *sqlx.Tx, rows []*Row) error {
	if len(rows) == 0 {
		return nil
	}
	var id, kind, instance, plan, created, body, definition, trace array
	for _, r := range rows {
		request, err := json.Marshal(&r.Operation)
		if err != nil {
			return fmt.Errorf("insert operation %s: encode the request: %w", r.Operation.ID, err)
		}
		id.raw(r.Operation.ID)
		kind.text(string(r.Operation.Type))
		instance.text(r.Operation.InstanceID)
		plan.text(r.Operation.Plan.Name)
		created.time(r.CreatedAt)
		body.text(string(request))
		definition.text(r.Definition)
		trace.textOrNull(r.TraceParent)
	}
	if _, err := tx.ExecContext(ctx, insertSQL, &id, &kind, &instance, &plan, &created, &body, &definition, &trace); err != nil {
		return fmt.Errorf("insert operations: %w", err)
	}
	return nil
}

const (
	createInstancesSQL = `
INSERT INTO orchestrator.instances (instance_id) SELECT unnest($1::text[]) ON CONFLICT (instance_id) DO NOTHING`
	lockInstancesSQL = `
SELECT instance_id, COALESCE(running::text, ''), waiting, details, completed
FROM orchestrator.instances WHERE instance_id = ANY($1::text[]) ORDER BY instance_id FOR UPDATE`
	saveInstancesSQL = `
UPDATE orchestrator.instances n SET running = v.running::uuid, waiting = v.waiting, details = v.details::jsonb, completed = v.completed::text[]
FROM unnest($1::text[], $2::text[], $3::int4[], $4::text[], $5::text[]) AS v(instance_id, running, waiting, details, completed)
WHERE n.instance_id = v.instance_id`
	dropInstancesSQL = `
DELETE FROM orchestrator.instances WHERE instance_id = ANY($1::text[]) AND running IS NULL AND waiting = 0`
)

// LockInstancesTx creates the instances that are missing, locks all of them in one order, and returns them by id. Ids must be
// sorted and unique.
func (s *Store) LockInstancesTx(ctx context.Context, tx *sqlx.Tx, ids []string) (map[string]*Instance, error) {
	var list array
	for _, id := range ids {
		list.text(id)
	}
	if _, err := tx.ExecContext(ctx, createInstancesSQL, &list); err != nil {
		return nil, fmt.Errorf("create instances: %w", err)
	}
	rows, err := tx.QueryContext(ctx, lockInstancesSQL, &list)
	if err != nil {
		return nil, fmt.Errorf("lock instances: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err reports what matters
	instances := make(map[string]*Instance, len(ids))
	for rows.Next() {
		var i Instance
		var completed textList
		if err := rows.Scan(&i.ID, &i.Running, &i.Waiting, &i.Details, &completed); err != nil {
			return nil, fmt.Errorf("lock instances: %w", err)
		}
		i.Completed = completed
		instances[i.ID] = &i
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("lock instances: %w", err)
	}
	return instances, nil
}

// SaveInstancesTx writes instances that are locked.
func (s *Store) SaveInstancesTx(ctx context.Context, tx *sqlx.Tx, instances []*Instance) error {
	if len(instances) == 0 {
		return nil
	}
	var id, running, waiting, details, completed array
	for _, i := range instances {
		id.text(i.ID)
		running.textOrNull(i.Running)
		waiting.int(int64(i.Waiting))
		details.textOrNull(string(i.Details))
		completed.list(i.Completed)
	}
	if _, err := tx.ExecContext(ctx, saveInstancesSQL, &id, &running, &waiting, &details, &completed); err != nil {
		return fmt.Errorf("save instances: %w", err)
	}
	return nil
}

// DropInstances forgets instances that are deprovisioned, unless an operation has come for them meanwhile.
func (s *Store) DropInstances(ctx context.Context, ids []string) error {
	var list array
	for _, id := range ids {
		list.text(id)
	}
	if _, err := s.commit.ExecContext(ctx, dropInstancesSQL, &list); err != nil {
		return fmt.Errorf("drop instances: %w", err)
	}
	return nil
}
