package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/event"
)

const (
	// lookSQL relies on operations_due, operations_in_flight and operations_pending. It is the one statement that runs when
	// nothing happens. The order keeps the planner from looking for a pending operation in the table itself, which is a long way
	// when there is none any more.
	lookSQL = `
SELECT (SELECT min(due_at) FROM orchestrator.operations WHERE due_at IS NOT NULL),
    (SELECT min(execute_before) FROM orchestrator.operations WHERE state = 'in progress' AND due_at IS NULL),
    (SELECT type FROM orchestrator.operations WHERE state = 'pending' ORDER BY type, arrived LIMIT 1) IS NOT NULL`
	dueSQL = `
SELECT id::text FROM orchestrator.operations WHERE due_at <= $1 ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED`
	unansweredSQL = `
SELECT id::text FROM orchestrator.operations WHERE state = 'in progress' AND due_at IS NULL AND execute_before <= $1
LIMIT $2 FOR UPDATE SKIP LOCKED`
	// anyInFlightSQL relies on operations_in_flight.
	anyInFlightSQL = `
SELECT EXISTS (SELECT 1 FROM orchestrator.operations WHERE state = 'in progress' AND due_at IS NULL AND execute_before <= $1)`
	// inFlightSQL goes through operations_in_flight in the order of its ids.
	inFlightSQL = `
SELECT id::text FROM orchestrator.operations WHERE state = 'in progress' AND due_at IS NULL AND execute_before <= $1 AND id > $2
ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED`
	// outSQL goes through operations_in_flight in the order of its ids, and finds the definition of each in requests_pkey; a join may read
	// all requests.
	outSQL = `
SELECT o.id::text, o.cursor, o.dispatch, (SELECT r.definition FROM orchestrator.requests r WHERE r.operation_id = o.id),
    o.stage, o.step, COALESCE(o.sent_at, o.first_tried_at), o.execute_before
FROM orchestrator.operations o WHERE o.state = 'in progress' AND o.due_at IS NULL AND o.id > $1
ORDER BY o.id LIMIT $2`
)

// Look is what the sweep finds.
type Look struct {
	// NextDue is when the next waiting operation is due, NextUnanswered when the next command counts as unanswered; zero
	// when there is none.
	NextDue, NextUnanswered time.Time
	// Pending tells that operations wait for their turn.
	Pending bool
}

// Look asks in one statement whether there is anything to sweep.
func (s *Store) Look(ctx context.Context) (Look, error) {
	var due, unanswered sql.NullTime
	var l Look
	if err := s.read.QueryRowContext(ctx, lookSQL).Scan(&due, &unanswered, &l.Pending); err != nil {
		return Look{}, fmt.Errorf("look for due operations: %w", err)
	}
	l.NextDue, l.NextUnanswered = utc(due), utc(unanswered)
	return l, nil
}

// Due locks and names operations that are due; those that another orchestrator has locked are left to it.
func (t *Tx) Due(ctx context.Context, now time.Time, limit int) ([]string, error) {
	return ids(ctx, t.tx, dueSQL, now, limit)
}

// Unanswered locks and names operations whose command is unanswered; those that another orchestrator has locked are left
// to it.
func (t *Tx) Unanswered(ctx context.Context, now time.Time, limit int) ([]string, error) {
	return ids(ctx, t.tx, unansweredSQL, now, limit)
}

// AnyInFlight tells whether InFlight would find something. It locks nothing.
func (s *Store) AnyInFlight(ctx context.Context, until time.Time) (found bool, err error) {
	if err := s.read.GetContext(ctx, &found, anyInFlightSQL, until); err != nil {
		return false, fmt.Errorf("look for operations in flight: %w", err)
	}
	return found, nil
}

// InFlight locks and names operations whose command is out and counts as unanswered at that time or before, in the order of their ids
// and behind one of them; those that somebody else has locked are being changed, and left out.
func (t *Tx) InFlight(ctx context.Context, until time.Time, behind string, limit int) ([]string, error) {
	return ids(ctx, t.tx, inFlightSQL, until, behind, limit)
}

// Out is a command that is out: what tells it from another, and when it was sent.
type Out struct {
	OperationID string
	Cursor      int64
	Dispatch    int
	// Definition is the hash of the process definition, in which Stage and Step are.
	Definition  string
	Stage, Step int
	// SentAt is when it was sent for the first time; how often it was sent since only ExecuteBefore tells.
	SentAt, ExecuteBefore time.Time
}

// Out lists commands that are out, in the order of the ids of their operations and behind one of them. It locks nothing: each may be
// answered before it returns.
func (s *Store) Out(ctx context.Context, behind string, limit int) (found []Out, err error) {
	rows, err := s.read.QueryContext(ctx, outSQL, behind, limit)
	if err != nil {
		return nil, fmt.Errorf("list commands that are out: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var o Out
		err := rows.Scan(&o.OperationID, &o.Cursor, &o.Dispatch, &o.Definition, &o.Stage, &o.Step, &o.SentAt, &o.ExecuteBefore)
		if err != nil {
			return nil, fmt.Errorf("list commands that are out: %w", err)
		}
		found = append(found, o)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list commands that are out: %w", err)
	}
	return found, nil
}

func ids(ctx context.Context, tx *sqlx.Tx, query string, args ...any) ([]string, error) {
	var found []string
	if err := tx.SelectContext(ctx, &found, query, args...); err != nil {
		return nil, fmt.Errorf("find due operations: %w", err)
	}
	return found, nil
}

// PendingTypes names those of the types that have a pending operation whose instance is free, and which is the next one there.
func (s *Store) PendingTypes(ctx context.Context, types []event.OperationType) ([]event.OperationType, error) {
	var list array
	for _, t := range types {
		list.text(string(t))
	}
	var found []event.OperationType
	if err := s.read.SelectContext(ctx, &found, pendingTypesSQL, &list); err != nil {
		return nil, fmt.Errorf("find types with pending operations: %w", err)
	}
	return found, nil
}
