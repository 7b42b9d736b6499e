package store

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/kyma-project/keb/libs/event"
)

const (
	// firstSQL selects operations o that are the first pending operation of their instance, of any type. It relies on
	// operations_instance.
	firstSQL = `o.arrived = (SELECT min(w.arrived) FROM orchestrator.operations w WHERE w.instance_id = o.instance_id AND w.state = 'pending')`
	// pendingSQL relies on operations_pending. It skips locked instances, which another orchestrator handles.
	pendingSQL = `
SELECT o.id::text, o.instance_id
FROM orchestrator.operations o JOIN orchestrator.instances n ON n.instance_id = o.instance_id
WHERE o.state = 'pending' AND o.type = $1 AND o.hold_id IS NULL AND n.running IS NULL AND ` + firstSQL + `
ORDER BY o.arrived LIMIT $2 FOR UPDATE OF n SKIP LOCKED`
	// pendingOfSQL relies on operations_instance.
	pendingOfSQL = `
SELECT o.id::text, o.instance_id, o.type
FROM orchestrator.operations o JOIN orchestrator.instances n ON n.instance_id = o.instance_id
WHERE o.state = 'pending' AND n.running IS NULL AND o.instance_id = ANY($1::text[])
ORDER BY o.arrived FOR UPDATE OF n SKIP LOCKED`
	// inProgressSQL relies on operations_in_progress.
	inProgressSQL = `SELECT count(*) FROM orchestrator.operations WHERE type = $1 AND state = 'in progress'`
	// pendingTypesSQL relies on operations_pending, and reads one row per type.
	pendingTypesSQL = `
SELECT t.type FROM unnest($1::text[]) AS t(type)
WHERE (SELECT o.arrived FROM orchestrator.operations o JOIN orchestrator.instances n ON n.instance_id = o.instance_id
    WHERE o.state = 'pending' AND o.type = t.type AND o.hold_id IS NULL AND n.running IS NULL AND ` + firstSQL + ` ORDER BY o.arrived LIMIT 1) IS NOT NULL`
)

// Candidate is a pending operation whose instance is free and locked.
type Candidate struct {
	ID, InstanceID string
	Type           event.OperationType
}

// Pending returns pending operations of a type that are not held and whose instances are free, in order of arrival, and locks the instances.
// It returns only the first pending operation of an instance, counting all types and held ones.
func (x *Tx) Pending(ctx context.Context, t event.OperationType, limit int) ([]Candidate, error) {
	rows, err := x.tx.QueryContext(ctx, pendingSQL, string(t), limit)
	if err != nil {
		return nil, fmt.Errorf("find pending operations: %w", err)
	}
	defer rows.Close()
	var found []Candidate
	for rows.Next() {
		c := Candidate{Type: t}
		if err := rows.Scan(&c.ID, &c.InstanceID); err != nil {
			return nil, fmt.Errorf("find pending operations: %w", err)
		}
		found = append(found, c)
	}
	return found, rows.Err()
}

// PendingOf returns all pending operations of the given instances that are free, in order of arrival, and locks the instances.
func (t *Tx) PendingOf(ctx context.Context, instanceIDs []string) ([]Candidate, error) {
	var list array
	for _, id := range instanceIDs {
		list.text(id)
	}
	rows, err := t.tx.QueryContext(ctx, pendingOfSQL, &list)
	if err != nil {
		return nil, fmt.Errorf("find the pending operations of instances: %w", err)
	}
	defer rows.Close()
	var found []Candidate
	for rows.Next() {
		var c Candidate
		if err := rows.Scan(&c.ID, &c.InstanceID, &c.Type); err != nil {
			return nil, fmt.Errorf("find the pending operations of instances: %w", err)
		}
		found = append(found, c)
	}
	return found, rows.Err()
}

// Admission serializes the admission of a type among all orchestrators until the transaction ends, and returns how many
// of its operations are in progress.
func (x *Tx) Admission(ctx context.Context, t event.OperationType) (int, error) {
	key := fnv.New64a()
	_, _ = key.Write([]byte("keb admission " + string(t))) // a hash does not fail
	if _, err := x.tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(key.Sum64())); err != nil {
		return 0, fmt.Errorf("lock the admission of %s: %w", t, err)
	}
	var n int
	if err := x.tx.GetContext(ctx, &n, inProgressSQL, string(t)); err != nil {
		return 0, fmt.Errorf("count operations in progress: %w", err)
	}
	return n, nil
}
