package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
)

const (
	// censusSettings make the planner use the partial indexes of unfinished operations instead of the table, which may be ten times as
	// large. The timeout ends the statement in the server when the context of the caller ends.
	censusSettings = `SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), set_config('work_mem', '16MB', true),
    set_config('max_parallel_workers_per_gather', '0', true), set_config('statement_timeout', $1, true)`
	// censusSQL relies on operations_pending or operations_unfinished, operations_in_flight, operations_due, and on the primary key of requests.
	// The definition is read with a subquery, because a join could become a scan of the table.
	censusSQL = `
SELECT o.type, o.plan, o.state, CASE WHEN r.instance_id IS NULL THEN ` + pendingReasonSQL + ` ELSE 'instance_busy' END AS reason,
    '' AS definition, 0 AS stage, 0 AS step, 0 AS reason_step, false AS in_flight, count(*), min(o.created_at), min(o.created_at)
FROM orchestrator.operations o LEFT JOIN orchestrator.operations r ON r.instance_id = o.instance_id AND r.state = 'in progress'
WHERE o.state = 'pending' AND o.created_at >= $3 GROUP BY o.type, o.plan, o.state, reason
UNION ALL
SELECT o.type, o.plan, o.state, ` + reasonSQL + ` AS reason,
    (SELECT r.definition FROM orchestrator.requests r WHERE r.operation_id = o.id) AS definition, o.stage, o.step,
    ` + reasonStepSQL + ` AS reason_step, o.due_at IS NULL AND o.hold_id IS NULL AS in_flight, count(*), min(o.created_at), min(` + reasonSinceSQL + `)
FROM (
    SELECT * FROM orchestrator.operations WHERE state = 'in progress' AND due_at IS NULL AND id >= $1
    UNION ALL
    SELECT * FROM orchestrator.operations WHERE state = 'in progress' AND due_at >= $2
) o
GROUP BY o.type, o.plan, o.state, reason, definition, o.stage, o.step, reason_step, in_flight`
	// reasonSinceSQL is since when the reason of an operation in progress holds, or when its command was sent.
	reasonSinceSQL = `COALESCE(o.held_since, o.limited_since, o.condition_since, CASE WHEN o.due_at IS NULL THEN o.sent_at END, o.first_tried_at, o.sent_at, o.created_at)`
	// reasonStepSQL is the step that the reason belongs to.
	reasonStepSQL = `CASE WHEN o.hold_id IS NULL AND o.queue IS NULL THEN COALESCE(o.condition_step, o.step) ELSE o.step END`
	// firstDueSQL relies on operations_due.
	firstDueSQL = `SELECT min(due_at) FROM orchestrator.operations WHERE due_at >= $1`
	// activeSQL relies on orchestrations_active, and activeMembersSQL also on an index of the members by orchestration.
	activeSQL = `
SELECT type, state, count(*) FROM orchestrator.orchestrations
WHERE state IN ('pending', 'in progress', 'retrying', 'paused', 'canceling') GROUP BY type, state`
	activeMembersSQL = `
SELECT o.type, m.state, count(*)
FROM orchestrator.orchestrations o JOIN orchestrator.orchestration_members m ON m.orchestration_id = o.id AND m.retried_as IS NULL
WHERE o.state IN ('pending', 'in progress', 'retrying', 'paused', 'canceling') GROUP BY o.type, m.state`
)

// Group counts unfinished operations at the same position that wait for the same reason.
type Group struct {
	Type  event.OperationType
	Plan  string
	State event.OperationState
	// Reason is never operator.NoWorker, which depends on the live workers.
	Reason operator.WaitingReason
	// Definition, Stage and Step are the position of operations in progress. ReasonStep is the step of the stage that Reason belongs to;
	// Step is an earlier one while the stage is repeated.
	Definition              string
	Stage, Step, ReasonStep int
	// InFlight reports whether the command of Step is in flight.
	InFlight bool
	Count    int
	// Oldest is the earliest arrival. Since is the earliest time since which the reason holds; for operator.Executing the command was sent
	// then.
	Oldest, Since time.Time
}

// Census holds the positions of unfinished operations.
type Census struct {
	Groups []Group
	// FirstDue is the earliest time that an operation waits for; zero if none waits.
	FirstDue time.Time
}

// Census counts the unfinished operations above the marks of the last sweep. Its cost does not depend on the number of finished ones.
func (s *Store) Census(ctx context.Context) (Census, error) {
	var c Census
	marks := s.lastMarks()
	err := census(ctx, s.read, func(tx *sqlx.Tx) error {
		var due sql.NullTime
		if err := tx.GetContext(ctx, &due, firstDueSQL, marks.Due); err != nil {
			return err
		}
		c = Census{FirstDue: utc(due)}
		rows, err := tx.QueryContext(ctx, censusSQL, marks.ID, marks.Due, marks.Created)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var g Group
			var definition sql.NullString
			err := rows.Scan(&g.Type, &g.Plan, &g.State, &g.Reason, &definition, &g.Stage, &g.Step, &g.ReasonStep, &g.InFlight, &g.Count,
				&g.Oldest, &g.Since)
			if err != nil {
				return err
			}
			g.Definition, g.Oldest, g.Since = definition.String, g.Oldest.UTC(), g.Since.UTC()
			c.Groups = append(c.Groups, g)
		}
		return rows.Err()
	})
	if err != nil {
		return Census{}, fmt.Errorf("count operations that have not ended: %w", err)
	}
	return c, nil
}

// Standing counts orchestrations, or their operations, by type and state.
type Standing struct {
	Type  event.OperationType
	State orchestration.State
	Count int
}

// Census counts the unfinished orchestrations and their operations.
func (s *Orchestrations) Census(ctx context.Context) (orchestrations, operations []Standing, err error) {
	err = census(ctx, s.read, func(tx *sqlx.Tx) error {
		if err := tx.SelectContext(ctx, &orchestrations, activeSQL); err != nil || len(orchestrations) == 0 {
			return err
		}
		return tx.SelectContext(ctx, &operations, activeMembersSQL)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("count orchestrations that have not ended: %w", err)
	}
	return orchestrations, operations, nil
}

// census runs f in a transaction with censusSettings. The server cancels its statements at the deadline of ctx.
func census(ctx context.Context, db *sqlx.DB, f func(tx *sqlx.Tx) error) error {
	limit := "0"
	if end, ok := ctx.Deadline(); ok {
		limit = strconv.FormatInt(max(1, time.Until(end).Milliseconds()), 10)
	}
	return postgres.InTx(ctx, db, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, censusSettings, limit); err != nil {
			return err
		}
		return f(tx)
	})
}
