package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

const rowColumns = `
    o.id::text, o.arrived, o.created_at, o.state, o.version, o.cursor, o.stage, o.step, o.stage_attempt, o.step_attempt, o.dispatch,
    o.stage_memory, o.first_tried_at, o.execute_before, o.due_at, o.started_at, o.finished_at, o.deadline,
    o.tries, o.not_completed, o.skipped, o.completed, COALESCE(o.cancel_reason, ''), COALESCE(o.message, ''), o.error, o.details, o.ending, o.cause,
    o.stage_started_at, o.sent_at, COALESCE(o.command_cursor, 0), COALESCE(o.condition, ''), COALESCE(o.condition_step, 0), o.condition_since,
    COALESCE(o.event_key, ''), o.events,
    COALESCE(o.hold_id::text, ''), o.held_since, COALESCE(o.queue, ''), o.limited_since, o.granted, COALESCE(o.extended_ms, 0), o.unanswered_at,
    r.body, r.definition, COALESCE(r.traceparent, '')`

const (
	fromRows = ` FROM orchestrator.operations o JOIN orchestrator.requests r ON r.operation_id = o.id`
	// loadSQL uses the primary key.
	loadSQL = `SELECT` + rowColumns + fromRows + ` WHERE o.id = ANY($1::uuid[])`
	// awaitedSQL uses the primary key.
	awaitedSQL = loadSQL + ` AND o.state = 'in progress' AND o.execute_before IS NOT NULL`
	// unfinishedSQL relies on operations_instance.
	unfinishedSQL = `SELECT` + rowColumns + fromRows + `
WHERE o.instance_id = $1 AND o.state IN ('pending', 'in progress') ORDER BY o.arrived FOR UPDATE OF o NOWAIT`
)

// Load returns existing operations by id.
func (s *Store) Load(ctx context.Context, ids []string) (map[string]*Row, error) {
	return s.loadWith(ctx, s.load, ids)
}

// Load is Load inside a transaction.
func (t *Tx) Load(ctx context.Context, ids []string) (map[string]*Row, error) {
	return t.s.loadWith(ctx, t.tx.StmtxContext(ctx, t.s.load), ids)
}

func (s *Store) loadWith(ctx context.Context, stmt *sqlx.Stmt, ids []string) (map[string]*Row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var list array
	for _, id := range ids {
		list.raw(id)
	}
	rows, err := stmt.QueryContext(ctx, &list)
	found, err := readRows("load operations", rows, err)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*Row, len(found))
	for _, r := range found {
		byID[r.Operation.ID] = r
	}
	return byID, nil
}

// Unfinished locks and returns the unfinished operations of an instance, in order of arrival. If another transaction holds a row, the
// error is retryable (postgres.IsRetryable), because the other transaction may wait for the instance that the caller has locked.
func (t *Tx) Unfinished(ctx context.Context, instanceID string) ([]*Row, error) {
	rows, err := t.tx.QueryContext(ctx, unfinishedSQL, instanceID)
	return readRows("load the operations of an instance", rows, err)
}

// readRows returns the rows of a query. An error of the query, or of a row, begins with what was read.
func readRows(what string, rows *sql.Rows, err error) (found []*Row, _ error) {
	if err == nil {
		found, err = scanRows(rows)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return found, nil
}

func scanRows(rows *sql.Rows) (found []*Row, err error) {
	defer rows.Close()
	for rows.Next() {
		r, err := scanRow(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, rows.Err()
}

func scanRow(rows *sql.Rows) (*Row, error) {
	var (
		r                                                     Row
		id                                                    string
		firstTried, executeBefore, due, started, ended, dead  sql.NullTime
		stageStarted, sent, condition, held, limited          sql.NullTime
		unanswered                                            sql.NullTime
		tries, skipped, failure, details, ending, cause, body []byte
		events                                                []byte
		notCompleted, completed, granted                      textList
		extended                                              int64
	)
	err := rows.Scan(&id, &r.Arrived, &r.CreatedAt, &r.Status, &r.Version, &r.Cursor, &r.Stage, &r.Step, &r.StageAttempt,
		&r.StepAttempt, &r.Dispatch, &r.StageMemory, &firstTried, &executeBefore, &due, &started, &ended, &dead,
		&tries, &notCompleted, &skipped, &completed, &r.CancelReason, &r.Message, &failure, &details, &ending, &cause, &stageStarted, &sent,
		&r.CommandCursor, &r.Condition, &r.ConditionStep, &condition, &r.EventKey, &events, &r.HoldID, &held, &r.Queue, &limited, &granted, &extended, &unanswered,
		&body, &r.Definition, &r.TraceParent)
	if err != nil {
		return nil, err
	}
	r.FirstTriedAt, r.ExecuteBefore, r.DueAt = utc(firstTried), utc(executeBefore), utc(due)
	r.StartedAt, r.FinishedAt, r.Deadline = utc(started), utc(ended), utc(dead)
	if r.StageStartedAt, r.SentAt = utc(stageStarted), utc(sent); r.SentAt.IsZero() {
		r.SentAt = r.FirstTriedAt
	}
	r.CreatedAt, r.ConditionSince, r.HeldSince, r.LimitedSince = r.CreatedAt.UTC(), utc(condition), utc(held), utc(limited)
	r.NotCompleted, r.Completed, r.Granted = notCompleted, completed, granted
	r.Details, r.Extended, r.UnansweredAt = details, time.Duration(extended)*time.Millisecond, utc(unanswered)
	if len(tries) > 0 {
		if err := json.Unmarshal(tries, &r.Tries); err != nil {
			return nil, fmt.Errorf("operation %s: decode tries: %w", id, err)
		}
	}
	if len(skipped) > 0 {
		if err := json.Unmarshal(skipped, &r.Skipped); err != nil {
			return nil, fmt.Errorf("operation %s: decode skipped steps: %w", id, err)
		}
	}
	if len(events) > 0 {
		if err := json.Unmarshal(events, &r.Events); err != nil {
			return nil, fmt.Errorf("operation %s: decode events: %w", id, err)
		}
	}
	if len(failure) > 0 {
		r.Error = &event.Error{}
		if err := json.Unmarshal(failure, r.Error); err != nil {
			return nil, fmt.Errorf("operation %s: decode error: %w", id, err)
		}
	}
	if len(ending) > 0 {
		if err := json.Unmarshal(ending, &r.Ending); err != nil {
			return nil, fmt.Errorf("operation %s: decode ending: %w", id, err)
		}
	}
	if len(cause) > 0 {
		if err := json.Unmarshal(cause, &r.Cause); err != nil {
			return nil, fmt.Errorf("operation %s: decode cause: %w", id, err)
		}
	}
	if err := json.Unmarshal(body, &r.Operation); err != nil {
		return nil, fmt.Errorf("operation %s: decode the request: %w", id, err)
	}
	addCondition(&r)
	return &r, nil
}

// addCondition sets the condition of a waiting operation that an earlier release has written, as reasonSQL does.
func addCondition(r *Row) {
	if r.Condition != "" || !r.Waiting() {
		return
	}
	r.Condition, r.ConditionStep, r.ConditionSince = engine.Polling, r.Step, r.FirstTriedAt
	if r.Error != nil {
		r.Condition = engine.Failing
	}
	if r.ConditionSince.IsZero() { // the stage starts again after its memory was lost
		r.ConditionSince = r.SentAt
	}
}

func utc(t sql.NullTime) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// textList scans a text[]; NULL is nil.
type textList []string

// Scan implements sql.Scanner.
func (l *textList) Scan(src any) error {
	*l = nil
	if src == nil {
		return nil
	}
	scanner, ok := postgres.Array((*[]string)(l)).(sql.Scanner)
	if !ok {
		return fmt.Errorf("scan text[]: the driver's array is no scanner")
	}
	return scanner.Scan(src)
}

// clean removes NUL and invalid UTF-8, which Postgres rejects.
func clean(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}

// cleanJSON is clean for a text that json.Marshal made: NUL is escaped in it, and is not allowed in jsonb.
func cleanJSON(text string) string {
	const escapedNUL = `\u0000`
	if !strings.Contains(text, escapedNUL) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		switch {
		case strings.HasPrefix(text, escapedNUL):
			text = text[len(escapedNUL):]
		case text[0] == '\\' && len(text) > 1: // an escaped backslash does not begin another escape
			b.WriteString(text[:2])
			text = text[2:]
		default:
			b.WriteByte(text[0])
			text = text[1:]
		}
	}
	return b.String()
}

// newerSQL relies on operations_instance.
const newerSQL = `
SELECT v.id::text, v.newer::text FROM (
    SELECT o.id, (SELECT n.id FROM orchestrator.operations n WHERE n.instance_id = o.instance_id AND n.arrived > o.arrived
        AND (n.state <> 'cancelled' OR n.type = 'update' AND o.type = 'update') ORDER BY n.arrived LIMIT 1) AS newer
    FROM orchestrator.operations o WHERE o.id = ANY($1::uuid[])) v
WHERE v.newer IS NOT NULL`

// Newer returns the first later operation of the same instance, for the operations that have one. It ignores cancelled operations, except an
// update after an update, because the platform has requested other values. The instances must be locked.
func (t *Tx) Newer(ctx context.Context, ids []string) (map[string]string, error) {
	var list array
	for _, id := range ids {
		list.raw(id)
	}
	return pairs[string, string](ctx, t.tx, "look for newer operations", newerSQL, &list)
}

// lockSQL uses the primary key.
const lockSQL = `SELECT` + rowColumns + fromRows + ` WHERE o.id = ANY($1::uuid[]) FOR UPDATE OF o SKIP LOCKED`

// Lock locks and returns existing operations by id. It leaves out those that another transaction holds, because that transaction may wait
// for an instance that the caller has locked.
func (t *Tx) Lock(ctx context.Context, ids []string) (map[string]*Row, error) {
	return t.s.loadWith(ctx, t.tx.StmtxContext(ctx, t.s.lock), ids)
}
