package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
)

const (
	// marksSQL relies on operations_due and operations_unfinished. The text keeps the planner from reading operations_pkey in its order, with all
	// ended operations.
	marksSQL = `
SELECT (SELECT min(due_at) FROM orchestrator.operations WHERE due_at IS NOT NULL),
    min(id::text COLLATE "C"), min(created_at) FROM orchestrator.operations WHERE state IN ('pending', 'in progress')`
	// sweepStatusSQL relies on operations_due, operations_in_flight, operations_pending, operations_held, operations_event, operations_limited
	// and signals_undelivered. An idle orchestrator has only
	// this statement. For the pending operation the planner uses operations_pending or operations_unfinished, whatever is smaller after the mark.
	sweepStatusSQL = `
SELECT (SELECT min(due_at) FROM orchestrator.operations WHERE due_at >= $1),
    CASE WHEN $3 THEN (SELECT min(execute_before) FROM orchestrator.operations WHERE state = 'in progress' AND due_at IS NULL AND id >= $2) END,
    CASE WHEN $3 THEN (SELECT type FROM orchestrator.operations WHERE state = 'pending' AND created_at >= $4
        ORDER BY type, global_account, plan, region, arrived LIMIT 1) IS NOT NULL ELSE false END,
    EXISTS (SELECT 1 FROM orchestrator.operations WHERE hold_id IS NOT NULL),
    EXISTS (` + signalledKeysSQL + `),
    $3 AND EXISTS (SELECT 1 FROM orchestrator.operations WHERE queue IS NOT NULL),
    (SELECT count(*) FROM orchestrator.holds), (SELECT COALESCE((extract(epoch FROM max(created_at)) * 1000000)::bigint, 0) FROM orchestrator.holds),
    COALESCE((SELECT version FROM orchestrator.limits), 0), COALESCE((SELECT max(version) FROM orchestrator.overlay_versions), 0),
    (SELECT count(*) FROM orchestrator.ramps), (SELECT COALESCE((extract(epoch FROM max(GREATEST(created_at, removed_at))) * 1000000)::bigint, 0) FROM orchestrator.ramps)`
	dueSQL = `
SELECT id::text FROM orchestrator.operations WHERE due_at >= $1 AND due_at <= $2 ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED`
	unansweredSQL = `
SELECT id::text FROM orchestrator.operations WHERE state = 'in progress' AND due_at IS NULL AND execute_before <= $2 AND id >= $1
LIMIT $3 FOR UPDATE SKIP LOCKED`
	// anyInFlightSQL relies on operations_in_flight.
	anyInFlightSQL = `
SELECT EXISTS (SELECT 1 FROM orchestrator.operations WHERE state = 'in progress' AND due_at IS NULL AND execute_before <= $1)`
	// inFlightSQL scans operations_in_flight in the order of its ids.
	inFlightSQL = `
SELECT id::text FROM orchestrator.operations WHERE state = 'in progress' AND due_at IS NULL AND execute_before <= $1 AND id > $2
ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED`
	// sentCommandsSQL scans operations_in_flight in the order of its ids, and reads each definition with requests_pkey; a join could read
	// all requests.
	sentCommandsSQL = `
SELECT o.id::text, o.cursor, o.dispatch, (SELECT r.definition FROM orchestrator.requests r WHERE r.operation_id = o.id),
    o.stage, o.step, COALESCE(o.sent_at, o.first_tried_at), o.execute_before, COALESCE(o.extended_ms, 0)
FROM orchestrator.operations o WHERE o.state = 'in progress' AND o.due_at IS NULL AND o.execute_before IS NOT NULL AND o.id > $1
ORDER BY o.id LIMIT $2`
)

// SweepStatus describes the work of the next sweep.
type SweepStatus struct {
	// NextDue is the time at which the next waiting operation is due, and NextUnanswered the time at which the next command counts as
	// unanswered; zero if there is none.
	NextDue, NextUnanswered time.Time
	// Pending reports whether there are pending operations, and Limited whether there are commands that wait for limits. Only a whole status has
	// them and NextUnanswered.
	Pending, Limited bool
	// Held reports whether there are held operations.
	Held bool
	// Signalled reports whether an event has come for an operation that waits for it.
	Signalled bool
	// Holds is the version of the holds.
	Holds hold.Version
	// Limits is the version of the limits.
	Limits int64
	// Overlays is the version of the applied overlays.
	Overlays int64
	// Ramps is the version of the ramps.
	Ramps hold.Version
	// Ranks are the ranks of all orchestrators, after a call of Rank; nil if they were read less than a second ago.
	Ranks []int
}

// Marks bound where unfinished operations are. While a transaction is held, Postgres keeps the index entries that former versions of operations
// left behind, and without bounds every look would read all of them.
type Marks struct {
	// ReadAt is the time at which the marks were read.
	ReadAt time.Time
	// Due is not after any DueAt, Created not after the CreatedAt of any unfinished operation, and ID is below its id. Later operations have
	// higher ids, as these begin with their time, and are created and due later. What does not, because a clock is wrong or a request was late,
	// is found when the marks are read again.
	Due, Created time.Time
	ID           string
}

const (
	// marksAge is the age at which marks are read again.
	marksAge = 30 * time.Second
	// marksMargin is how much clocks may differ without a delay.
	marksMargin = 30 * time.Second
)

// NewMarks returns the marks for the earliest DueAt and CreatedAt and the lowest id that were found; all may be empty.
func NewMarks(now, due, created time.Time, id string) Marks {
	margin := now.Add(-marksMargin)
	m := Marks{ReadAt: now, Due: margin, Created: margin}
	if !due.IsZero() && due.Before(margin) {
		m.Due = due
	}
	if !created.IsZero() && created.Before(margin) {
		m.Created = created
	}
	ms := uint64(max(margin.UnixMilli(), 0)) // the first 48 bits of a UUID of version 7
	m.ID = fmt.Sprintf("%08x-%04x", ms>>16&0xffffffff, ms&0xffff) + noTime
	if id != "" {
		m.ID = min(m.ID, id[:len(id)-len(noTime)]+noTime)
	}
	return m
}

// noTime is the rest of the lowest UUID that begins with a time.
const noTime = "-0000-0000-000000000000"

// Old reports whether the marks must be read again.
func (m Marks) Old(now time.Time) bool {
	return m.ReadAt.IsZero() || now.Before(m.ReadAt) || now.Sub(m.ReadAt) >= marksAge
}

// marksAt returns the marks, which are at most marksAge old.
func (s *Store) marksAt(ctx context.Context, now time.Time) (Marks, error) {
	if m := s.lastMarks(); !m.Old(now) {
		return m, nil
	}
	var due, created sql.NullTime
	var id sql.NullString
	if err := s.read.QueryRowContext(ctx, marksSQL).Scan(&due, &id, &created); err != nil {
		return Marks{}, fmt.Errorf("look for the first operations: %w", err)
	}
	m := NewMarks(now, utc(due), utc(created), id.String)
	s.marks.Store(&m)
	return m, nil
}

// lastMarks returns the marks of the last sweep, and marks that contain everything before the first one.
func (s *Store) lastMarks() Marks {
	if m := s.marks.Load(); m != nil {
		return *m
	}
	return Marks{ID: "00000000-0000" + noTime}
}

// LowestID returns an id that is below those of all unfinished operations, except late ones (see Marks).
func (s *Store) LowestID() string { return s.lastMarks().ID }

// SweepStatus reads the work of the next sweep with one statement, and twice in a minute with two. An operation whose id, CreatedAt or DueAt is more than
// marksMargin older than now may appear later by marksAge. Only if whole is set does it look for commands in flight or waiting for limits, and for pending operations.
func (s *Store) SweepStatus(ctx context.Context, now time.Time, whole bool) (SweepStatus, error) {
	marks, err := s.marksAt(ctx, now)
	if err != nil {
		return SweepStatus{}, err
	}
	var due, unanswered sql.NullTime
	var status SweepStatus
	target := []any{
		&due, &unanswered, &status.Pending, &status.Held, &status.Signalled, &status.Limited, &status.Holds.Count, &status.Holds.Newest,
		&status.Limits, &status.Overlays, &status.Ramps.Count, &status.Ramps.Newest,
	}
	query, ranks := sweepStatusSQL, ""
	withRanks := s.ranksDue.Load() > 0 && now.UnixNano() >= s.ranksDue.Load()
	if withRanks {
		query, target = sweepStatusSQL+`, (`+ranksSQL+`)`, append(target, &ranks)
	}
	if err := s.read.QueryRowContext(ctx, query, marks.Due, marks.ID, whole, marks.Created).Scan(target...); err != nil {
		return SweepStatus{}, fmt.Errorf("look for due operations: %w", err)
	}
	if withRanks {
		s.ranksDue.Store(now.Add(ranksEvery).UnixNano())
		if status.Ranks, err = parseRanks(ranks); err != nil {
			return SweepStatus{}, err
		}
	}
	status.NextDue, status.NextUnanswered = utc(due), utc(unanswered)
	return status, nil
}

// Due locks due operations above the marks of the last sweep, and returns their ids. It skips operations that another orchestrator has locked.
func (t *Tx) Due(ctx context.Context, now time.Time, limit int) ([]string, error) {
	return ids(ctx, t.tx, dueSQL, t.s.lastMarks().Due, now, limit)
}

// Unanswered locks operations above the marks of the last sweep whose command is unanswered, and returns their ids. It skips operations that
// another orchestrator has locked.
func (t *Tx) Unanswered(ctx context.Context, now time.Time, limit int) ([]string, error) {
	return ids(ctx, t.tx, unansweredSQL, t.s.lastMarks().ID, now, limit)
}

// AnyInFlight reports whether InFlight would find an operation. It locks nothing.
func (s *Store) AnyInFlight(ctx context.Context, until time.Time) (found bool, err error) {
	if err := s.read.GetContext(ctx, &found, anyInFlightSQL, until); err != nil {
		return false, fmt.Errorf("look for operations in flight: %w", err)
	}
	return found, nil
}

// InFlight locks operations with a command in flight whose limit is until or earlier, and returns their ids. It starts after an id, in the
// order of the ids, and skips operations that another transaction has locked.
func (t *Tx) InFlight(ctx context.Context, until time.Time, after string, limit int) ([]string, error) {
	return ids(ctx, t.tx, inFlightSQL, until, after, limit)
}

// SentCommand is a command in flight, with the time at which it was sent.
type SentCommand struct {
	OperationID string
	Cursor      int64
	Dispatch    int
	// Definition is the hash of the process definition, in which Stage and Step are.
	Definition  string
	Stage, Step int
	// SentAt is the time at which the command was first sent. If it was sent again, only ExecuteBefore has changed.
	SentAt, ExecuteBefore time.Time
	// Extended is how much later ExecuteBefore is because the worker asked for more time; negative if the deadline has cut it off.
	Extended time.Duration
}

// SentCommands returns commands in flight, in the order of the ids of their operations, starting after an id. It locks nothing, so a command
// may be answered before SentCommands returns.
func (s *Store) SentCommands(ctx context.Context, after string, limit int) (found []SentCommand, err error) {
	return collect(ctx, s.read, "list commands in flight", sentCommandsSQL, []any{after, limit}, func(rows *sql.Rows, c *SentCommand) error {
		var extended int64
		err := rows.Scan(&c.OperationID, &c.Cursor, &c.Dispatch, &c.Definition, &c.Stage, &c.Step, &c.SentAt, &c.ExecuteBefore, &extended)
		c.Extended = time.Duration(extended) * time.Millisecond
		return err
	})
}

func ids(ctx context.Context, tx *sqlx.Tx, query string, args ...any) ([]string, error) {
	var found []string
	if err := tx.SelectContext(ctx, &found, query, args...); err != nil {
		return nil, fmt.Errorf("find due operations: %w", err)
	}
	return found, nil
}
