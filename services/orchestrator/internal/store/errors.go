package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// NoErrorGroup is the group of operations that fail without a known group: an earlier release has written them.
const NoErrorGroup = "none"

// otherErrors is the group of all errors beyond the maximum number of groups.
const otherErrors = "*"

// errorGroup returns the group of the error of an operation.
func errorGroup(r *Row) string {
	e := r.Error
	if e == nil && r.Condition == engine.Failing { // the memory of the stage was lost
		e = &event.Error{Component: lostComponent, Message: r.Message}
	}
	return errorKey(e, &r.Operation)
}

// lostComponent is the component of an error that is only a message.
const lostComponent = "keb"

const (
	// failingSQL and failedSQL are followed by the statement errorsSQL. failingSQL relies on operations_in_progress and operations_pending, or on
	// operations_unfinished, and failedSQL on operations_ended_at. The definition is read only for operations that are counted.
	failingSQL = `
WITH v AS (
    SELECT r.reason, o.state, o.type, (SELECT q.definition FROM orchestrator.requests q WHERE q.operation_id = o.id) AS definition, o.stage,
        CASE WHEN r.reason = 'no_worker' THEN o.step ELSE ` + reasonStepSQL + ` END AS step, COALESCE(o.hold_id::text, '') AS hold,
        CASE WHEN r.reason = 'limited' THEN COALESCE(` + queueNameSQL + `, '') ELSE '' END AS "limit",
        CASE WHEN r.reason IN ('failing', 'no_answer') THEN COALESCE(o.error_group, '` + NoErrorGroup + `') ELSE '' END AS error_group,
        ` + reasonSinceSQL + ` AS since, o.id
    FROM orchestrator.operations o, LATERAL (SELECT CASE WHEN %[1]s THEN 'no_worker' ELSE ` + reasonSQL + ` END AS reason OFFSET 0) r
    WHERE o.state = 'in progress' AND r.reason IN ('failing', 'no_answer', 'no_worker', 'held', 'limited')
    UNION ALL
    SELECT r.reason, o.state, o.type, '', -1, -1, COALESCE(o.hold_id::text, ''), '', '', COALESCE(o.held_since, o.created_at), o.id
    FROM orchestrator.operations o, LATERAL (SELECT ` + pendingReasonSQL + ` AS reason OFFSET 0) r
    WHERE o.state = 'pending' AND r.reason IN ('held', 'limited') AND NOT ` + busySQL + `
)`
	failedSQL = `
WITH v AS (
    SELECT 'failed' AS reason, o.state, o.type, (SELECT q.definition FROM orchestrator.requests q WHERE q.operation_id = o.id) AS definition,
        o.stage, o.step, '' AS hold, '' AS "limit", COALESCE(o.error_group, '` + NoErrorGroup + `') AS error_group, o.finished_at AS since, o.id
    FROM orchestrator.operations o WHERE o.state = 'failed' AND ` + endedStatesSQL + ` AND o.finished_at >= %[1]s
)`
	// errorsSQL counts the operations of v by place and error. Only the most frequent errors have groups of their own.
	errorsSQL = `, g AS (
    SELECT v.reason, v.state, v.type, v.definition, v.stage, v.step, v.hold, v."limit", v.error_group, count(*) AS n, min(v.since) AS first, max(v.since) AS last,
        %[1]s((extract(epoch FROM v.since) * 1000000)::bigint::text || ' ' || v.id::text COLLATE "C") AS sample
    FROM v GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
), most AS (
    SELECT g.error_group FROM g WHERE g.error_group <> '' GROUP BY g.error_group ORDER BY sum(g.n) DESC, g.error_group LIMIT %[2]s
)
SELECT c.*, COALESCE(o.message, ''), o.error, COALESCE(q.body, 'null') FROM (
    SELECT g.reason, g.state, g.type, COALESCE(g.definition, ''), g.stage, g.step, g.hold, g."limit",
        CASE WHEN g.error_group = '' OR m.error_group IS NOT NULL THEN g.error_group ELSE '` + otherErrors + `' END AS grouped,
        sum(g.n)::bigint, min(g.first), max(g.last), count(DISTINCT g.error_group), split_part(%[1]s(g.sample), ' ', 2) AS sample
    FROM g LEFT JOIN most m ON m.error_group = g.error_group
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
) c LEFT JOIN orchestrator.operations o ON o.id = c.sample::uuid LEFT JOIN orchestrator.requests q ON q.operation_id = o.id`
	// endedSinceSQL relies on operations_ended_at.
	endedSinceSQL = `
SELECT s.state, (SELECT count(*) FROM (SELECT FROM orchestrator.operations o
    WHERE o.state = s.state AND ` + endedStatesSQL + ` AND o.finished_at >= $1 LIMIT $2) c)
FROM unnest(ARRAY['succeeded', 'failed', 'cancelled']) AS s(state)`
)

// Trouble counts operations of one type that stand still at the same place for the same reason, or that failed there, with similar errors.
type Trouble struct {
	// Reason is failing, no_answer, no_worker, held or limited; empty for operations that have failed.
	Reason operator.WaitingReason
	State  event.OperationState
	Type   event.OperationType
	// Place is the step that the reason belongs to, or at which the operations have failed. Its definition is empty for pending operations.
	Place Place
	// Hold is the hold that keeps the operations, and Limit the limit that their commands wait for.
	Hold, Limit string
	// Error is the key of similar errors, or NoErrorGroup. It is set for operations that fail, get no answer or have failed.
	Error string
	// Errors is greater than 0 if the operations have so many different errors, which are less frequent than the others, and Error is empty.
	Errors int
	Count  int
	// First and Last are the first and the last time at which an operation began to stand still, or failed.
	First, Last time.Time
	// Sample is the operation of First, or, for operations that have failed, of Last.
	Sample Sampled
}

// Sampled is an operation with its error.
type Sampled struct {
	ID string
	// Error may be nil, and Message is that of the last step result.
	Error   *event.Error
	Message string
	// Pattern is what the messages of similar errors have in common.
	Pattern string
}

// Troubles returns what the operations in progress fail with or stand still for. unserved are the places of steps without a live worker. At
// most groups errors are told apart.
func (s *Store) Troubles(ctx context.Context, unserved Places, groups int) ([]Trouble, error) {
	w := &where{}
	query := fmt.Sprintf(failingSQL, w.unserved(unserved))
	query += fmt.Sprintf(errorsSQL, "min", w.bind("%s", groups))
	return s.troubles(ctx, query, w.args)
}

// Failures returns what operations have failed with since a time. At most groups errors are told apart.
func (s *Store) Failures(ctx context.Context, since time.Time, groups int) ([]Trouble, error) {
	w := &where{}
	query := fmt.Sprintf(failedSQL, w.bind("%s", since))
	query += fmt.Sprintf(errorsSQL, "max", w.bind("%s", groups))
	return s.troubles(ctx, query, w.args)
}

func (s *Store) troubles(ctx context.Context, query string, args []any) ([]Trouble, error) {
	var found []Trouble
	err := census(ctx, s.read, func(tx *sqlx.Tx) error {
		found = nil
		rows, err := tx.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var t Trouble
			var failure, body []byte
			err := rows.Scan(&t.Reason, &t.State, &t.Type, &t.Place.Definition, &t.Place.Stage, &t.Place.Step, &t.Hold, &t.Limit, &t.Error, &t.Count,
				&t.First, &t.Last, &t.Errors, &t.Sample.ID, &t.Sample.Message, &failure, &body)
			if err == nil {
				err = t.Sample.decode(failure, body)
			}
			if err != nil {
				return err
			}
			if t.State.Final() {
				t.Reason = ""
			}
			if t.Error == otherErrors {
				t.Error = ""
			} else {
				t.Errors = 0
			}
			t.First, t.Last = t.First.UTC(), t.Last.UTC()
			found = append(found, t)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("count errors: %w", err)
	}
	return found, nil
}

// decode sets the error and the pattern.
func (s *Sampled) decode(failure, body []byte) error {
	var op event.Operation
	if err := json.Unmarshal(body, &op); err != nil {
		return fmt.Errorf("operation %s: decode the request: %w", s.ID, err)
	}
	message := s.Message
	if len(failure) > 0 {
		s.Error = &event.Error{}
		if err := json.Unmarshal(failure, s.Error); err != nil {
			return fmt.Errorf("operation %s: decode error: %w", s.ID, err)
		}
		message = s.Error.Message
	}
	s.Pattern = ErrorPattern(message, &op)
	return nil
}

// EndedSince counts the operations that ended since a time, up to MaxCount per state. more reports the states with more of them.
func (s *Store) EndedSince(ctx context.Context, since time.Time) (counts map[event.OperationState]int, more map[event.OperationState]bool, err error) {
	rows, err := s.read.QueryContext(ctx, endedSinceSQL, since, MaxCount+1)
	if err != nil {
		return nil, nil, fmt.Errorf("count ended operations: %w", err)
	}
	defer rows.Close()
	counts, more = map[event.OperationState]int{}, map[event.OperationState]bool{}
	for rows.Next() {
		var state event.OperationState
		var n int
		if err := rows.Scan(&state, &n); err != nil {
			return nil, nil, fmt.Errorf("count ended operations: %w", err)
		}
		counts[state], more[state] = min(n, MaxCount), n > MaxCount
	}
	return counts, more, rows.Err()
}
