package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/jmoiron/sqlx"
)

// insertSQL stores new operations with their current state and history.
var insertSQL = `
WITH v AS (` + valuesSQL + `
), f AS (
    SELECT * FROM unnest(` + arrays(afterHistory, "text", "text", "text", "timestamptz", "text", "text", "text", "text", "text") + `)
        WITH ORDINALITY AS f(type, instance_id, plan, created_at, body, definition, traceparent, global_account, region, n)
), r AS (
    INSERT INTO orchestrator.requests (operation_id, body, definition, traceparent)
    SELECT v.id, f.body::jsonb, f.definition, f.traceparent FROM v JOIN f USING (n)
), h AS (` + historySQL + `
)
INSERT INTO orchestrator.operations (` + names(operationFields, "version", "details_changed") + `, version, type, instance_id, plan, created_at,
    global_account, region)
SELECT ` + values(operationFields, "v", "version", "details_changed") + `, 0, f.type, f.instance_id, f.plan, f.created_at,
    left(f.global_account, 100), left(f.region, 100)
FROM v JOIN f USING (n) ORDER BY n`

// Insert stores new operations in order of arrival, with their state and history. Their version is 0 afterwards.
func (t *Tx) Insert(ctx context.Context, added []*Change) error {
	if len(added) == 0 {
		return nil
	}
	c := newColumns(len(added))
	var kind, instance, plan, created, body, definition, trace, account, region array
	for _, change := range added {
		r := change.Row
		request := r.Encoded
		if request == nil {
			var err error
			if request, err = json.Marshal(&r.Operation); err != nil {
				return fmt.Errorf("insert operation %s: encode the request: %w", r.Operation.ID, err)
			}
		}
		if err := c.add(&Change{Row: r, History: change.History, DetailsChanged: true}); err != nil {
			return fmt.Errorf("insert operation %s: %w", r.Operation.ID, err)
		}
		kind.text(string(r.Operation.Type))
		instance.text(r.Operation.InstanceID)
		plan.text(r.Operation.Plan.Name)
		created.time(r.CreatedAt)
		body.text(string(request))
		definition.text(r.Definition)
		trace.textOrNull(r.TraceParent)
		account.text(r.Operation.Context.GlobalAccountID)
		region.text(r.Operation.Runtime.Region)
	}
	args := append(c.args(), &kind, &instance, &plan, &created, &body, &definition, &trace, &account, &region)
	if _, err := t.tx.StmtxContext(ctx, t.s.insert).ExecContext(ctx, args...); err != nil {
		return fmt.Errorf("insert operations: %w", err)
	}
	return nil
}

const (
	// createInstancesSQL waits for concurrent transactions that create one of the instances, and skips instances that they created.
	createInstancesSQL = `
INSERT INTO orchestrator.instances (instance_id, running, waiting, details, completed, unanswered_at, removed)
SELECT v.instance_id, v.running::uuid, v.waiting, v.details::jsonb, v.completed::text[], v.unanswered_at, v.removed
FROM unnest($1::text[], $2::text[], $3::int4[], $4::text[], $5::text[], $6::timestamptz[], $7::bool[])
    AS v(instance_id, running, waiting, details, completed, unanswered_at, removed)
ON CONFLICT (instance_id) DO NOTHING`
	lockInstancesSQL = `
SELECT instance_id, COALESCE(running::text, ''), waiting, details, completed, unanswered_at, COALESCE(removed, false)
FROM orchestrator.instances WHERE instance_id = ANY($1::text[]) ORDER BY instance_id FOR UPDATE`
	saveInstancesSQL = `
UPDATE orchestrator.instances n SET running = v.running::uuid, waiting = v.waiting, details = v.details::jsonb, completed = v.completed::text[],
    unanswered_at = v.unanswered_at, removed = v.removed
FROM unnest($1::text[], $2::text[], $3::int4[], $4::text[], $5::text[], $6::timestamptz[], $7::bool[])
    AS v(instance_id, running, waiting, details, completed, unanswered_at, removed)
WHERE n.instance_id = v.instance_id`
	dropInstancesSQL = `
DELETE FROM orchestrator.instances WHERE instance_id = ANY($1::text[]) AND running IS NULL AND waiting = 0`
	// forgetUsersSQL relies on operations_instance. Operations after the deprovisioning belong to a new instance with the same id.
	forgetUsersSQL = `
UPDATE orchestrator.requests r SET body = r.body #- '{context,userId}'
FROM orchestrator.operations d JOIN orchestrator.operations o ON o.instance_id = d.instance_id AND o.arrived <= d.arrived
WHERE d.id = ANY($1::uuid[]) AND r.operation_id = o.id AND r.body -> 'context' ? 'userId'`
)

// LockInstances locks instances in the order of their ids and returns them by id. Missing instances are returned as new; they are not
// locked until they are saved. Ids must be sorted and unique.
func (t *Tx) LockInstances(ctx context.Context, ids []string) (map[string]*Instance, error) {
	var list array
	for _, id := range ids {
		list.text(id)
	}
	rows, err := t.tx.StmtxContext(ctx, t.s.lockInstances).QueryContext(ctx, &list)
	if err != nil {
		return nil, fmt.Errorf("lock instances: %w", err)
	}
	defer rows.Close()
	instances := make(map[string]*Instance, len(ids))
	for rows.Next() {
		var i Instance
		var completed textList
		var unanswered sql.NullTime
		if err := rows.Scan(&i.ID, &i.Running, &i.Waiting, &i.Details, &completed, &unanswered, &i.Removed); err != nil {
			return nil, fmt.Errorf("lock instances: %w", err)
		}
		i.Completed, i.UnansweredAt = completed, utc(unanswered)
		instances[i.ID] = &i
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("lock instances: %w", err)
	}
	for _, id := range ids {
		if instances[id] == nil {
			instances[id] = &Instance{ID: id, New: true}
		}
	}
	return instances, nil
}

// SaveInstances writes locked instances, and creates the new ones. The error is ErrConflict if another transaction has created one of
// them. New instances must be in the order of their ids.
func (t *Tx) SaveInstances(ctx context.Context, instances []*Instance) error {
	var created, changed []*Instance
	for _, i := range instances {
		if i.New {
			created = append(created, i)
		} else {
			changed = append(changed, i)
		}
	}
	for _, part := range []struct {
		stmt      *sqlx.Stmt
		instances []*Instance
	}{{t.s.createInstances, created}, {t.s.saveInstances, changed}} {
		if len(part.instances) == 0 {
			continue
		}
		n, err := writeInstances(ctx, t.tx.StmtxContext(ctx, part.stmt), part.instances)
		if err != nil {
			return fmt.Errorf("save instances: %w", err)
		}
		if n != int64(len(part.instances)) {
			return fmt.Errorf("save instances: %w", ErrConflict)
		}
	}
	return nil
}

func writeInstances(ctx context.Context, stmt *sqlx.Stmt, instances []*Instance) (written int64, err error) {
	var id, running, waiting, details, completed, unanswered, removed array
	for _, i := range instances {
		id.text(i.ID)
		running.textOrNull(i.Running)
		waiting.int(int64(i.Waiting))
		details.textOrNull(string(i.Details))
		completed.list(i.Completed)
		unanswered.time(i.UnansweredAt)
		removed.raw(strconv.FormatBool(i.Removed))
	}
	result, err := stmt.ExecContext(ctx, &id, &running, &waiting, &details, &completed, &unanswered, &removed)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// DropInstances deletes deprovisioned instances, except those with an operation.
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

// ForgetUsers deletes the user ids from all requests for the instances that the given deprovisionings removed
// (docs/contracts/processes.md#deprovisioning). It is idempotent.
func (s *Store) ForgetUsers(ctx context.Context, deprovisionings []string) error {
	var list array
	for _, id := range deprovisionings {
		list.raw(id)
	}
	if _, err := s.commit.ExecContext(ctx, forgetUsersSQL, &list); err != nil {
		return fmt.Errorf("forget users: %w", err)
	}
	return nil
}
