package store

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// While a transaction is held, Postgres keeps the index entries of operations that have ended.
func TestSweepStatus_TransactionIsHeld_ReadsNoEndedOperations(t *testing.T) {
	b := setup(t)
	now := time.Now()
	held, err := b.db.BeginTxx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = held.Rollback() }()
	_, err = held.Exec(`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
	require.NoError(t, err)
	var n int
	require.NoError(t, held.Get(&n, `SELECT count(*) FROM orchestrator.operations`))
	for i, query := range []string{
		`
INSERT INTO orchestrator.operations (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt,
    dispatch, stage_memory, started_at, deadline, due_at, execute_before)
SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'update', 'old-' || n, 'azure', $1::timestamptz, 'in progress',
    9, 20, 1, 0, 1, 0, 0, false, $1, $1, CASE n % 2 WHEN 0 THEN $1::timestamptz END, $1 FROM generate_series(1, 2000) AS n`, `
UPDATE orchestrator.operations SET state = 'succeeded', due_at = NULL, execute_before = NULL, finished_at = $1`,
		`ANALYZE orchestrator.operations`,
	} {
		var args []any
		if i < 2 {
			args = []any{now.Add(time.Duration(i-10) * time.Minute)}
		}
		_, err := b.db.Exec(query, args...)
		require.NoError(t, err)
	}
	running := b.started(1)
	read := func(marks Marks) int {
		plan := b.explainRun(sweepStatusSQL, []any{marks.Due, marks.ID, true, marks.Created})
		hits, err := strconv.Atoi(regexp.MustCompile(`Buffers: shared hit=(\d+)`).FindStringSubmatch(plan)[1])
		require.NoErrorf(t, err, "pages in\n%s", plan)
		return hits
	}
	everything := read(b.lastMarks())
	status, err := b.SweepStatus(t.Context(), now, true)
	require.NoError(t, err)
	if !status.NextUnanswered.Equal(running.ExecuteBefore) || !status.NextDue.IsZero() {
		t.Errorf("status %+v, want only the command in flight, with its limit %s", status, running.ExecuteBefore)
	}
	if pages := read(b.lastMarks()); pages > 60 || everything < 10*pages {
		t.Errorf("a sweep reads %d pages, and %d without marks", pages, everything)
	}
}

// The id and the due time of the operation are older than the marks, as if its request had been late.
func TestSweepStatus_OperationIsLate_AppearsWithNewMarks(t *testing.T) {
	b := setup(t)
	now := time.Now()
	status := func() SweepStatus {
		found, err := b.SweepStatus(t.Context(), now, true)
		require.NoError(t, err)
		return found
	}
	status()
	for n, due := range []any{nil, now.Add(-time.Hour)} {
		_, err := b.db.Exec(`
INSERT INTO orchestrator.operations (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt,
    dispatch, stage_memory, started_at, deadline, due_at, execute_before)
VALUES (('00000000-0000-7000-8000-00000000000' || $1::text)::uuid, 'update', 'late-' || $1::text, 'azure', $2, 'in progress', 9, 20, 1, 0, 1, 0, 0, false, $2, $2, $3, $2)`,
			strconv.Itoa(n), now.Add(-time.Hour), due)
		require.NoError(t, err)
	}
	_, err := b.db.Exec(`
INSERT INTO orchestrator.operations (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt, dispatch, stage_memory)
VALUES ('00000000-0000-7000-8000-000000000009', 'update', 'late-9', 'azure', $1, 'pending', 1, 0, 0, 0, 0, 0, 0, false)`, now.Add(-time.Hour))
	require.NoError(t, err)
	if early := status(); !early.NextDue.IsZero() || !early.NextUnanswered.IsZero() || early.Pending {
		t.Errorf("status %+v, want none before the marks are read again", early)
	}
	now = now.Add(marksAge)
	if late := status(); late.NextDue.IsZero() || late.NextUnanswered.IsZero() || !late.Pending {
		t.Errorf("status %+v, want the late operations", late)
	}
	require.NoError(t, b.InTx(t.Context(), func(tx *Tx) error {
		due, err := tx.Due(t.Context(), now, 10)
		require.NoError(t, err)
		unanswered, err := tx.Unanswered(t.Context(), now, 10)
		if len(due) != 1 || len(unanswered) != 1 {
			t.Errorf("due %v, unanswered %v, want one each", due, unanswered)
		}
		return err
	}))
}
