package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// valuesSQL are the columns of an operation that change, and historySQL those of its history, as arrays ($1 to $40).
const (
	valuesSQL = `
    SELECT * FROM unnest(
        $1::uuid[], $2::int4[], $3::text[], $4::int4[], $5::int4[], $6::int4[], $7::int4[], $8::int4[], $9::int4[], $10::bool[],
        $11::timestamptz[], $12::timestamptz[], $13::timestamptz[], $14::timestamptz[], $15::timestamptz[], $16::timestamptz[],
        $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[], $23::bool[], $24::text[],
        $37::text[], $38::timestamptz[], $39::timestamptz[], $40::int4[]
    ) WITH ORDINALITY AS v(id, version, state, cursor, stage, step, stage_attempt, step_attempt, dispatch, stage_memory,
        first_tried_at, execute_before, due_at, started_at, finished_at, deadline,
        tries, not_completed, completed, cancel_reason, message, error, details_changed, details, ending, stage_started_at, sent_at, facts_after, n)`
	historySQL = `
    INSERT INTO orchestrator.history
        (operation_id, cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind, worker_version, message, error)
    SELECT h.operation_id, h.cursor, h.stage, h.step, h.stage_attempt, h.step_attempt, h.started_at, h.finished_at, h.kind,
        h.worker_version, h.message, h.error::jsonb
    FROM unnest($25::uuid[], $26::int4[], $27::int4[], $28::int4[], $29::int4[], $30::int4[], $31::timestamptz[], $32::timestamptz[],
        $33::text[], $34::text[], $35::text[], $36::text[])
        AS h(operation_id, cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind, worker_version, message, error)`
)

// writeSQL writes new states by primary key, and the history of those whose version was still the one that was read.
const writeSQL = `
WITH v AS (` + valuesSQL + `
), u AS (
    UPDATE orchestrator.operations o SET
        state = v.state, version = o.version + 1, cursor = v.cursor, stage = v.stage, step = v.step,
        stage_attempt = v.stage_attempt, step_attempt = v.step_attempt, dispatch = v.dispatch, stage_memory = v.stage_memory,
        first_tried_at = v.first_tried_at, execute_before = v.execute_before, due_at = v.due_at,
        started_at = v.started_at, finished_at = v.finished_at, deadline = v.deadline,
        tries = v.tries::jsonb, not_completed = v.not_completed::text[], completed = v.completed::text[],
        cancel_reason = v.cancel_reason, message = v.message, error = v.error::jsonb, ending = v.ending::jsonb,
        stage_started_at = v.stage_started_at, sent_at = v.sent_at, facts_after = LEAST(o.facts_after, v.facts_after),
        details = CASE WHEN v.details_changed THEN v.details::jsonb ELSE o.details END
    FROM v WHERE o.id = v.id AND o.version = v.version
    RETURNING o.id, o.instance_id, o.details
), h AS (` + historySQL + `
    JOIN u ON u.id = h.operation_id
)`

// writeReleaseSQL also frees the instances of the operations that have ended ($41 ids, $42 gone, $43 completed), by primary
// key, and returns how many operations wait for each.
const (
	writeOnlySQL    = writeSQL + ` SELECT id, 0 FROM u`
	writeReleaseSQL = writeSQL + `, r AS (
    SELECT * FROM unnest($41::uuid[], $42::bool[], $43::text[]) AS r(id, gone, completed)
), i AS (
    UPDATE orchestrator.instances n SET
        running = NULLIF(n.running, u.id),
        details = CASE WHEN r.gone THEN NULL ELSE u.details END,
        completed = r.completed::text[]
    FROM u JOIN r ON r.id = u.id WHERE n.instance_id = u.instance_id
    RETURNING n.instance_id, n.waiting
) SELECT u.id, COALESCE(i.waiting, 0) FROM u LEFT JOIN i ON i.instance_id = u.instance_id`
)

// columns are the arrays of a write statement.
type columns struct {
	id, version, state, cursor, stage, step, stageAttempt, stepAttempt, dispatch, stageMemory column
	firstTriedAt, executeBefore, dueAt, startedAt, finishedAt, deadline                       column
	tries, notCompleted, completed, cancelReason, message, failure, detailsChanged, details   column
	hID, hCursor, hStage, hStep, hStageAttempt, hStepAttempt, hStartedAt, hFinishedAt         column
	hKind, hWorkerVersion, hMessage, hError, ending, stageStartedAt, sentAt, factsAfter       column
	rID, rGone, rCompleted                                                                    column
	releases                                                                                  int
}

// newColumns makes room for about so many changes.
func newColumns(changes int) *columns {
	ints := func() column { return newColumn(typeInt4, changes) }
	times := func() column { return newColumn(typeTimestamptz, changes) }
	texts := func() column { return newColumn(typeText, changes) }
	return &columns{
		id: newColumn(typeUUID, changes), version: ints(), state: texts(), cursor: ints(), stage: ints(), step: ints(),
		stageAttempt: ints(), stepAttempt: ints(), dispatch: ints(), stageMemory: newColumn(typeBool, changes),
		firstTriedAt: times(), executeBefore: times(), dueAt: times(), startedAt: times(), finishedAt: times(), deadline: times(),
		tries: texts(), notCompleted: texts(), completed: texts(), cancelReason: texts(), message: texts(), failure: texts(),
		detailsChanged: newColumn(typeBool, changes), details: texts(),
		hID: newColumn(typeUUID, changes), hCursor: ints(), hStage: ints(), hStep: ints(), hStageAttempt: ints(), hStepAttempt: ints(),
		hStartedAt: times(), hFinishedAt: times(), hKind: texts(), hWorkerVersion: texts(), hMessage: texts(), hError: texts(),
		ending: texts(), stageStartedAt: times(), sentAt: times(), factsAfter: ints(),
		rID: newColumn(typeUUID, 0), rGone: newColumn(typeBool, 0), rCompleted: newColumn(typeText, 0),
	}
}

func (c *columns) add(change *Change) error {
	r := change.Row
	if err := c.id.uuid(r.Operation.ID); err != nil {
		return err
	}
	c.version.int(r.Version)
	c.state.text(string(r.Status))
	c.cursor.int(int(r.Cursor))
	c.stage.int(r.Stage)
	c.step.int(r.Step)
	c.stageAttempt.int(r.StageAttempt)
	c.stepAttempt.int(r.StepAttempt)
	c.dispatch.int(r.Dispatch)
	c.stageMemory.bool(r.StageMemory)
	c.firstTriedAt.time(r.FirstTriedAt)
	c.executeBefore.time(r.ExecuteBefore)
	c.dueAt.time(r.DueAt)
	c.startedAt.time(r.StartedAt)
	c.finishedAt.time(r.FinishedAt)
	c.deadline.time(r.Deadline)
	c.stageStartedAt.time(r.StageStartedAt)
	if r.SentAt.Equal(r.FirstTriedAt) {
		c.sentAt.null() // as with nearly every first try: less to write
	} else {
		c.sentAt.time(r.SentAt)
	}
	if len(r.Tries) == 0 {
		c.tries.null()
	} else {
		tries, err := json.Marshal(r.Tries)
		if err != nil {
			return fmt.Errorf("encode tries: %w", err)
		}
		c.tries.text(string(tries))
	}
	c.notCompleted.list(r.NotCompleted)
	c.completed.list(r.Completed)
	c.cancelReason.textOrNull(clean(r.CancelReason))
	c.message.textOrNull(clean(r.Message))
	if err := c.failure.error(r.Error); err != nil {
		return err
	}
	if r.Ending == nil {
		c.ending.null()
	} else {
		ending, err := json.Marshal(r.Ending)
		if err != nil {
			return fmt.Errorf("encode ending: %w", err)
		}
		c.ending.text(clean(string(ending)))
	}
	if change.FactsAfter == nil {
		c.factsAfter.null()
	} else {
		c.factsAfter.int(int(*change.FactsAfter))
	}
	c.detailsChanged.bool(change.DetailsChanged)
	if change.DetailsChanged {
		c.details.textOrNull(string(r.Details))
	} else {
		c.details.null()
	}
	if change.Release != nil {
		c.releases++
		if err := c.rID.uuid(r.Operation.ID); err != nil {
			return err
		}
		c.rGone.bool(change.Release.Gone)
		c.rCompleted.list(change.Release.Completed)
	}
	return c.addHistory(r.Operation.ID, change.History)
}

func (c *columns) addHistory(id string, entries []engine.Entry) error {
	for i := range entries {
		e := &entries[i]
		kind := string(e.Kind)
		if e.Kind == engine.KindStep {
			kind = string(e.Outcome)
		}
		if err := c.hID.uuid(id); err != nil {
			return err
		}
		c.hCursor.int(int(e.Cursor))
		c.hStage.int(e.Stage)
		c.hStep.int(e.Step)
		c.hStageAttempt.int(e.StageAttempt)
		c.hStepAttempt.int(e.StepAttempt)
		c.hStartedAt.time(e.StartedAt)
		c.hFinishedAt.time(e.FinishedAt)
		c.hKind.text(kind)
		c.hWorkerVersion.textOrNull(clean(e.WorkerVersion))
		c.hMessage.textOrNull(clean(e.Message))
		if err := c.hError.error(e.Error); err != nil {
			return err
		}
	}
	return nil
}

func (c *column) error(e *event.Error) error {
	if e == nil {
		c.null()
		return nil
	}
	text, err := json.Marshal(event.Error{Component: clean(e.Component), Reason: clean(e.Reason), Message: clean(e.Message)})
	if err != nil {
		return fmt.Errorf("encode error: %w", err)
	}
	c.text(string(text))
	return nil
}

func (c *columns) args() []any {
	args := []any{
		c.id.value(), c.version.value(), c.state.value(), c.cursor.value(), c.stage.value(), c.step.value(), c.stageAttempt.value(), c.stepAttempt.value(), c.dispatch.value(), c.stageMemory.value(),
		c.firstTriedAt.value(), c.executeBefore.value(), c.dueAt.value(), c.startedAt.value(), c.finishedAt.value(), c.deadline.value(),
		c.tries.value(), c.notCompleted.value(), c.completed.value(), c.cancelReason.value(), c.message.value(), c.failure.value(), c.detailsChanged.value(), c.details.value(),
		c.hID.value(), c.hCursor.value(), c.hStage.value(), c.hStep.value(), c.hStageAttempt.value(), c.hStepAttempt.value(), c.hStartedAt.value(), c.hFinishedAt.value(),
		c.hKind.value(), c.hWorkerVersion.value(), c.hMessage.value(), c.hError.value(), c.ending.value(), c.stageStartedAt.value(), c.sentAt.value(), c.factsAfter.value(),
	}
	if c.releases > 0 {
		args = append(args, c.rID.value(), c.rGone.value(), c.rCompleted.value())
	}
	return args
}

// Write commits changes and returns, for each operation whose version was still the one that was read, how many operations
// wait for its instance (only where it was released). The versions of the written rows are raised. It is one statement and
// one commit, whatever the number of changes; no two changes may be of one operation or release one instance.
func (s *Store) Write(ctx context.Context, changes []*Change) (map[string]int, error) {
	return s.writeWith(ctx, func(stmt *sqlx.Stmt) *sqlx.Stmt { return stmt }, changes)
}

// Write is Write inside a transaction.
func (t *Tx) Write(ctx context.Context, changes []*Change) (map[string]int, error) {
	return t.s.writeWith(ctx, func(stmt *sqlx.Stmt) *sqlx.Stmt { return t.tx.StmtxContext(ctx, stmt) }, changes)
}

func (s *Store) writeWith(ctx context.Context, bind func(*sqlx.Stmt) *sqlx.Stmt, changes []*Change) (written map[string]int, err error) {
	if len(changes) == 0 {
		return nil, nil
	}
	c := newColumns(len(changes))
	for _, change := range changes {
		if err := c.add(change); err != nil {
			return nil, fmt.Errorf("write operation %s: %w", change.Row.Operation.ID, err)
		}
	}
	stmt := s.write
	if c.releases > 0 {
		stmt = s.writeRelease
	}
	rows, err := bind(stmt).QueryContext(ctx, c.args()...)
	if err != nil {
		return nil, fmt.Errorf("write operations: %w", err)
	}
	written = make(map[string]int, len(changes))
	if err := scanWritten(rows, written); err != nil {
		return nil, fmt.Errorf("write operations: %w", err)
	}
	for _, change := range changes {
		if _, ok := written[change.Row.Operation.ID]; ok {
			change.Row.Version++
		}
	}
	return written, nil
}

func scanWritten(rows *sql.Rows, written map[string]int) error {
	defer rows.Close()
	for rows.Next() {
		var id sql.RawBytes
		var waiting int
		if err := rows.Scan(&id, &waiting); err != nil {
			return err
		}
		written[uuidText(id)] = waiting
	}
	return rows.Err()
}
