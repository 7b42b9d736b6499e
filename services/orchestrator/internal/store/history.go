package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// foldLock is the advisory lock of the transaction that folds histories.
const foldLock = 0x6b65620003

const (
	entryColumns = `cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind,
    COALESCE(worker_version, ''), COALESCE(message, ''), error,
    COALESCE(tries, 1), first_cursor, first_stage_attempt, first_step_attempt, first_started_at, COALESCE(similar_messages, false), COALESCE(queued_ms, 0),
    COALESCE(retry_after_ms, 0), saved`
	// historyOfSQL relies on history_pkey.
	historyOfSQL = `SELECT ` + entryColumns + ` FROM orchestrator.history WHERE operation_id = $1::uuid ORDER BY cursor`
	// foldableSQL relies on primary keys.
	foldableSQL = `
SELECT o.operation::text, ` + entryColumns + `
FROM (
    SELECT o.id, LEAST(v.through, o.facts_after) FROM unnest($1::uuid[], $2::int4[]) AS v(id, through) JOIN orchestrator.operations o ON o.id = v.id
) o(operation, through), LATERAL (
    SELECT * FROM orchestrator.history h WHERE h.operation_id = o.operation AND h.cursor <= o.through ORDER BY h.cursor LIMIT $3
) h ORDER BY o.operation, cursor`
	// foldHistoriesSQL relies on history_pkey.
	foldHistoriesSQL = `
WITH d AS (
    DELETE FROM orchestrator.history h USING unnest($1::uuid[], $2::int4[]) AS d(operation_id, cursor)
    WHERE h.operation_id = d.operation_id AND h.cursor = d.cursor
) UPDATE orchestrator.history h SET tries = f.tries, first_cursor = f.first_cursor, first_stage_attempt = f.first_stage_attempt,
    first_step_attempt = f.first_step_attempt, first_started_at = f.first_started_at, similar_messages = NULLIF(f.similar_messages, false),
    saved = f.saved::jsonb
FROM unnest($3::uuid[], $4::int4[], $5::int4[], $6::int4[], $7::int4[], $8::int4[], $9::timestamptz[], $10::bool[], $11::text[])
    AS f(operation_id, cursor, tries, first_cursor, first_stage_attempt, first_step_attempt, first_started_at, similar_messages, saved)
WHERE h.operation_id = f.operation_id AND h.cursor = f.cursor`
)

// unfolded is the number of entries that History reads before it folds them.
const unfolded = 1000

// History returns the folded history of an operation. The operation may be archived.
func (s *Store) History(ctx context.Context, operationID string) ([]engine.Entry, error) {
	history, err := s.history(ctx, historyOfSQL, operationID)
	if len(history) > 0 || err != nil {
		return history, err
	}
	return s.history(ctx, archivedHistorySQL, operationID)
}

func (s *Store) history(ctx context.Context, query, operationID string) ([]engine.Entry, error) {
	rows, err := s.read.QueryContext(ctx, query, operationID)
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	defer rows.Close()
	var history []engine.Entry
	for limit := unfolded; rows.Next(); {
		e, err := scanEntry(rows)
		if err != nil {
			return nil, fmt.Errorf("read history: %w", err)
		}
		if history = append(history, e); len(history) >= limit {
			history = engine.FoldHistory(history)
			limit = 2*len(history) + unfolded
		}
	}
	return engine.FoldHistory(history), rows.Err()
}

// Foldable returns up to limit entries of the history of each operation as they are stored, from the first one on, up to a cursor and without
// those whose facts may not be published. Until its end, no other transaction folds histories; ok is false if another one does so now.
func (t *Tx) Foldable(ctx context.Context, through map[string]int64, limit int) (found map[string][]engine.Entry, ok bool, err error) {
	if err := t.tx.GetContext(ctx, &ok, `SELECT pg_try_advisory_xact_lock($1)`, foldLock); err != nil || !ok {
		return nil, false, err
	}
	var ids, cursors array
	for id, cursor := range through {
		ids.raw(id)
		cursors.int(cursor)
	}
	rows, err := t.tx.QueryContext(ctx, foldableSQL, &ids, &cursors, limit)
	if err != nil {
		return nil, false, fmt.Errorf("read histories: %w", err)
	}
	defer rows.Close()
	found = make(map[string][]engine.Entry, len(through))
	for rows.Next() {
		var id string
		e, err := scanEntry(rows, &id)
		if err != nil {
			return nil, false, fmt.Errorf("read histories: %w", err)
		}
		found[id] = append(found[id], e)
	}
	return found, true, rows.Err()
}

// Fold is the change of a stored history that folds it.
type Fold struct {
	OperationID string
	// Entries are the entries whose Folded has changed, and Removed the cursors of the entries that they replace.
	Entries []engine.Entry
	Removed []int64
}

// FoldHistories folds stored histories. Foldable must be called before, in the same transaction.
func (t *Tx) FoldHistories(ctx context.Context, folds []Fold) error {
	var removedOf, removed, operation, cursor, tries, first, stageAttempt, stepAttempt, started, similar, saved array
	for _, fold := range folds {
		for _, c := range fold.Removed {
			removedOf.raw(fold.OperationID)
			removed.int(c)
		}
		for i := range fold.Entries {
			e := &fold.Entries[i]
			operation.raw(fold.OperationID)
			cursor.int(e.Cursor)
			tries.int(int64(e.Folded.Tries))
			first.int(e.Folded.Cursor)
			stageAttempt.int(int64(e.Folded.StageAttempt))
			stepAttempt.int(int64(e.Folded.StepAttempt))
			started.time(e.Folded.StartedAt)
			similar.raw(strconv.FormatBool(e.Folded.Similar))
			if err := saved.json(e.Saved, e.Saved == nil); err != nil {
				return fmt.Errorf("fold histories: %w", err)
			}
		}
	}
	_, err := t.tx.ExecContext(ctx, foldHistoriesSQL, &removedOf, &removed, &operation, &cursor, &tries, &first, &stageAttempt, &stepAttempt, &started, &similar, &saved)
	if err != nil {
		return fmt.Errorf("fold histories: %w", err)
	}
	return nil
}

// scanEntry scans entryColumns, after other columns.
func scanEntry(rows *sql.Rows, before ...any) (engine.Entry, error) {
	var (
		e                                 engine.Entry
		kind                              string
		failure, saved                    []byte
		folded                            engine.Folded
		cursor, stageAttempt, stepAttempt sql.NullInt64
		queued, retryAfter                int64
		started                           sql.NullTime
	)
	err := rows.Scan(append(before, &e.Cursor, &e.Stage, &e.Step, &e.StageAttempt, &e.StepAttempt, &e.StartedAt, &e.FinishedAt, &kind,
		&e.WorkerVersion, &e.Message, &failure, &folded.Tries, &cursor, &stageAttempt, &stepAttempt, &started, &folded.Similar, &queued,
		&retryAfter, &saved)...)
	if err != nil {
		return e, err
	}
	e.Queued, e.RetryAfter = time.Duration(queued)*time.Millisecond, time.Duration(retryAfter)*time.Millisecond
	e.StartedAt, e.FinishedAt = e.StartedAt.UTC(), e.FinishedAt.UTC()
	if len(failure) > 0 {
		e.Error = &event.Error{}
		if err := json.Unmarshal(failure, e.Error); err != nil {
			return e, fmt.Errorf("decode error: %w", err)
		}
	}
	if len(saved) > 0 {
		if err := json.Unmarshal(saved, &e.Saved); err != nil {
			return e, fmt.Errorf("decode what was saved: %w", err)
		}
	}
	if folded.Tries > 1 {
		folded.Cursor, folded.StartedAt = cursor.Int64, utc(started)
		folded.StageAttempt, folded.StepAttempt = int(stageAttempt.Int64), int(stepAttempt.Int64)
		e.Folded = &folded
	}
	switch e.Kind = engine.Kind(kind); e.Kind {
	case engine.KindStarted, engine.KindSucceeded, engine.KindFailed, engine.KindCancelled, engine.KindRetried, engine.KindEventReceived, engine.KindEnding:
	default:
		e.Kind, e.Outcome = engine.KindStep, event.Outcome(kind)
	}
	return e, nil
}
