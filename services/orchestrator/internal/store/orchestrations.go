package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
)

// Orchestrations keeps orchestrations and their members. Whatever changes an orchestration locks its row first.
type Orchestrations struct{ write, read *sqlx.DB }

// NewOrchestrations returns orchestrations in a migrated database. A round of an orchestration needs two connections of
// write.
func NewOrchestrations(write, read *sqlx.DB) *Orchestrations {
	return &Orchestrations{write: write, read: read}
}

const (
	orchestrationColumns = ` o.id::text, o.type, o.state, o.description, o.parameters, o.created_at, o.updated_at, o.due_at
FROM orchestrator.orchestrations o`
	memberColumns = ` m.operation_id::text, m.orchestration_id::text, m.instance_id, m.runtime_id, m.global_account_id, m.subaccount_id,
    m.plan_id, m.plan_name, m.shoot_name, m.window_rule, m.state, m.description, m.due_at, m.window_begin, m.window_end,
    COALESCE(m.retried_as::text, ''), m.updated_at`
	fromMembers = `
FROM orchestrator.orchestration_members m`
	// waiting and unended are the conditions of partial indexes.
	waiting = `m.state IN ('pending', 'retrying')`
	unended = `state IN ('pending', 'in progress', 'retrying', 'canceling')`
)

// Create stores a new orchestration.
func (s *Orchestrations) Create(ctx context.Context, o *orchestration.Orchestration) error {
	parameters, err := json.Marshal(o.Parameters)
	if err != nil {
		return fmt.Errorf("create orchestration: encode parameters: %w", err)
	}
	_, err = s.write.ExecContext(ctx, `
INSERT INTO orchestrator.orchestrations (id, type, state, description, parameters, created_at, updated_at, due_at)
VALUES ($1::uuid, $2, $3, $4, $5::jsonb, $6, $6, $7)`,
		o.ID, string(o.Type), string(o.State), o.Description, string(parameters), o.CreatedAt, o.DueAt)
	if err != nil {
		return fmt.Errorf("create orchestration: %w", err)
	}
	return nil
}

// Active names the orchestrations that have not ended, the oldest first. It relies on orchestrations_active.
func (s *Orchestrations) Active(ctx context.Context) ([]string, error) {
	var found []string
	if err := s.read.SelectContext(ctx, &found,
		`SELECT id::text FROM orchestrator.orchestrations WHERE `+unended+` ORDER BY arrived`); err != nil {
		return nil, fmt.Errorf("find active orchestrations: %w", err)
	}
	return found, nil
}

// Exclusively runs f unless somebody else runs it for this orchestration, in any process; it tells whether it has. The lock
// goes with the connection, so nobody waits for a process that has died.
func (s *Orchestrations) Exclusively(ctx context.Context, id string, f func(ctx context.Context) error) (bool, error) {
	key := fnv.New64a()
	_, _ = key.Write([]byte("keb orchestration " + id)) // a hash does not fail
	var mine bool
	err := postgres.InTx(ctx, s.write, func(tx *sqlx.Tx) error {
		if err := tx.GetContext(ctx, &mine, `SELECT pg_try_advisory_xact_lock($1)`, int64(key.Sum64())); err != nil {
			return fmt.Errorf("lock orchestration: %w", err)
		}
		if !mine {
			return nil
		}
		return f(ctx)
	})
	return mine, err
}

// OrchestrationFilter selects orchestrations; an empty state selects all.
type OrchestrationFilter struct {
	State orchestration.State
	// Limit and Offset cut a page out of the newest-first list.
	Limit, Offset int
}

// List returns a page of orchestrations, the newest first, and how many there are in all.
func (s *Orchestrations) List(ctx context.Context, f OrchestrationFilter) (page []*orchestration.Orchestration, total int, err error) {
	where, args := "", []any(nil)
	if f.State != "" {
		where, args = " WHERE o.state = $1", []any{string(f.State)}
	}
	if err := s.read.GetContext(ctx, &total, `SELECT count(*) FROM orchestrator.orchestrations o`+where, args...); err != nil {
		return nil, 0, fmt.Errorf("count orchestrations: %w", err)
	}
	query := fmt.Sprintf("SELECT%s%s ORDER BY o.arrived DESC LIMIT $%d OFFSET $%d", orchestrationColumns, where, len(args)+1, len(args)+2)
	rows, err := s.read.QueryContext(ctx, query, append(args, f.Limit, f.Offset)...)
	if err != nil {
		return nil, 0, fmt.Errorf("list orchestrations: %w", err)
	}
	if page, err = scanOrchestrations(rows); err != nil {
		return nil, 0, fmt.Errorf("list orchestrations: %w", err)
	}
	return page, total, nil
}

// Get returns an orchestration, or ErrNotFound.
func (s *Orchestrations) Get(ctx context.Context, id string) (*orchestration.Orchestration, error) {
	return get(ctx, s.read, id, "")
}

func get(ctx context.Context, q sqlx.QueryerContext, id, lock string) (*orchestration.Orchestration, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return nil, ErrNotFound
	}
	rows, err := q.QueryContext(ctx, `SELECT`+orchestrationColumns+` WHERE o.id = $1::uuid`+lock, parsed.String())
	if err != nil {
		return nil, fmt.Errorf("read orchestration: %w", err)
	}
	found, err := scanOrchestrations(rows)
	if err != nil {
		return nil, fmt.Errorf("read orchestration: %w", err)
	}
	if len(found) == 0 {
		return nil, ErrNotFound
	}
	return found[0], nil
}

// locked runs f on an orchestration whose row is locked.
func (s *Orchestrations) locked(ctx context.Context, id string, f func(tx *sqlx.Tx, o *orchestration.Orchestration) error) error {
	return postgres.InTx(ctx, s.write, func(tx *sqlx.Tx) error {
		o, err := get(ctx, tx, id, " FOR UPDATE OF o")
		if err != nil {
			return err
		}
		return f(tx, o)
	})
}

func scanOrchestrations(rows *sql.Rows) (found []*orchestration.Orchestration, err error) {
	defer rows.Close()
	for rows.Next() {
		var o orchestration.Orchestration
		var parameters []byte
		var due sql.NullTime
		if err := rows.Scan(&o.ID, &o.Type, &o.State, &o.Description, &parameters, &o.CreatedAt, &o.UpdatedAt, &due); err != nil {
			return nil, err
		}
		o.CreatedAt, o.UpdatedAt, o.DueAt = o.CreatedAt.UTC(), o.UpdatedAt.UTC(), utc(due)
		if err := json.Unmarshal(parameters, &o.Parameters); err != nil {
			return nil, fmt.Errorf("orchestration %s: decode parameters: %w", o.ID, err)
		}
		found = append(found, &o)
	}
	return found, rows.Err()
}

// update writes what changes of an orchestration.
func update(ctx context.Context, tx *sqlx.Tx, o *orchestration.Orchestration) error {
	var due sql.NullTime
	if !o.DueAt.IsZero() {
		due = sql.NullTime{Time: o.DueAt, Valid: true}
	}
	_, err := tx.ExecContext(ctx, `
UPDATE orchestrator.orchestrations SET state = $2, description = $3, updated_at = $4, due_at = $5 WHERE id = $1::uuid`,
		o.ID, string(o.State), clean(o.Description), o.UpdatedAt, due)
	if err != nil {
		return fmt.Errorf("write orchestration: %w", err)
	}
	return nil
}

// Assign replaces the members of a pending orchestration, and writes its new state. An instance that is a member already
// keeps its operation id. The error wraps orchestration.ErrNotPossible when the orchestration is not pending any more.
func (s *Orchestrations) Assign(ctx context.Context, o *orchestration.Orchestration, members []*orchestration.Member) error {
	var c memberArrays
	for _, m := range members {
		if err := c.add(m); err != nil {
			return err
		}
	}
	return s.locked(ctx, o.ID, func(tx *sqlx.Tx, now *orchestration.Orchestration) error {
		if now.State != orchestration.Pending {
			return fmt.Errorf("%w: the orchestration is %s", orchestration.ErrNotPossible, now.State)
		}
		_, err := tx.ExecContext(ctx, `
DELETE FROM orchestrator.orchestration_members m WHERE m.orchestration_id = $1::uuid
    AND NOT EXISTS (SELECT FROM unnest($2::text[]) AS k(instance_id) WHERE k.instance_id = m.instance_id)`, o.ID, &c.instance)
		if err != nil {
			return fmt.Errorf("remove members: %w", err)
		}
		if err := c.insert(ctx, tx, `
ON CONFLICT (orchestration_id, instance_id) WHERE retried_as IS NULL DO UPDATE SET
    runtime_id = EXCLUDED.runtime_id, global_account_id = EXCLUDED.global_account_id, subaccount_id = EXCLUDED.subaccount_id,
    plan_id = EXCLUDED.plan_id, plan_name = EXCLUDED.plan_name, shoot_name = EXCLUDED.shoot_name, window_rule = EXCLUDED.window_rule,
    state = EXCLUDED.state, description = EXCLUDED.description, due_at = EXCLUDED.due_at, window_begin = EXCLUDED.window_begin,
    window_end = EXCLUDED.window_end, updated_at = EXCLUDED.updated_at`); err != nil {
			return err
		}
		return update(ctx, tx, o)
	})
}

// memberArrays are the columns of new members.
type memberArrays struct {
	id, orchestration, instance, runtime, account, subaccount, planID, planName, shoot array
	window, state, description, due, begin, end, updated                               array
}

func (c *memberArrays) add(m *orchestration.Member) error {
	c.id.raw(m.OperationID)
	c.orchestration.raw(m.OrchestrationID)
	c.instance.text(clean(m.InstanceID))
	c.runtime.text(clean(m.RuntimeID))
	c.account.text(clean(m.GlobalAccountID))
	c.subaccount.text(clean(m.SubaccountID))
	c.planID.text(clean(m.Plan.ID))
	c.planName.text(clean(m.Plan.Name))
	c.shoot.text(clean(m.ShootName))
	if m.Window == nil {
		c.window.null()
	} else {
		window, err := json.Marshal(m.Window)
		if err != nil {
			return fmt.Errorf("encode maintenance window: %w", err)
		}
		c.window.text(string(window))
	}
	c.state.text(string(m.State))
	c.description.text(clean(m.Description))
	c.due.time(m.DueAt)
	c.begin.time(m.WindowBegin)
	c.end.time(m.WindowEnd)
	c.updated.time(m.UpdatedAt)
	return nil
}

func (c *memberArrays) insert(ctx context.Context, tx *sqlx.Tx, conflict string) error {
	_, err := tx.ExecContext(ctx, `
INSERT INTO orchestrator.orchestration_members (operation_id, orchestration_id, instance_id, runtime_id, global_account_id,
    subaccount_id, plan_id, plan_name, shoot_name, window_rule, state, description, due_at, window_begin, window_end, updated_at)
SELECT v.operation_id, v.orchestration_id, v.instance_id, v.runtime_id, v.global_account_id, v.subaccount_id, v.plan_id, v.plan_name,
    v.shoot_name, v.window_rule::jsonb, v.state, v.description, v.due_at, v.window_begin, v.window_end, v.updated_at
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
    $11::text[], $12::text[], $13::timestamptz[], $14::timestamptz[], $15::timestamptz[], $16::timestamptz[])
    AS v(operation_id, orchestration_id, instance_id, runtime_id, global_account_id, subaccount_id, plan_id, plan_name, shoot_name,
        window_rule, state, description, due_at, window_begin, window_end, updated_at)`+conflict,
		&c.id, &c.orchestration, &c.instance, &c.runtime, &c.account, &c.subaccount, &c.planID, &c.planName, &c.shoot, &c.window,
		&c.state, &c.description, &c.due, &c.begin, &c.end, &c.updated)
	if err != nil {
		return fmt.Errorf("insert members: %w", err)
	}
	return nil
}

// Describe sets the description of an orchestration that is neither being canceled nor has ended; due is when the targets of
// a pending one are looked up next.
func (s *Orchestrations) Describe(ctx context.Context, id, description string, due, now time.Time) error {
	return s.locked(ctx, id, func(tx *sqlx.Tx, o *orchestration.Orchestration) error {
		if o.State == orchestration.Canceling || o.State.Final() {
			return nil
		}
		if o.State == orchestration.Pending {
			o.DueAt = due
		}
		o.Description, o.UpdatedAt = description, now
		return update(ctx, tx, o)
	})
}

// Settle takes over how the operations of members in progress have ended, and returns how many of each state. It relies on
// orchestration_members_in_progress and the primary key of operations.
func (s *Orchestrations) Settle(ctx context.Context, id string, now time.Time) (orchestration.Stats, error) {
	var ended []orchestration.State
	err := s.write.SelectContext(ctx, &ended, `
UPDATE orchestrator.orchestration_members m SET
    state = CASE o.state WHEN 'cancelled' THEN 'canceled' ELSE o.state END, updated_at = $2,
    description = COALESCE(CASE WHEN o.state = 'cancelled' THEN o.cancel_reason END,
        CASE WHEN o.state = 'failed' THEN o.error->>'message' END, o.message, '')
FROM orchestrator.operations o
WHERE m.orchestration_id = $1::uuid AND m.state = 'in progress' AND o.id = m.operation_id
    AND o.state IN ('succeeded', 'failed', 'cancelled')
RETURNING m.state`, id, now)
	if err != nil {
		return nil, fmt.Errorf("settle members: %w", err)
	}
	stats := orchestration.Stats{}
	for _, state := range ended {
		stats[state]++
	}
	return stats, nil
}

// Missed returns waiting members that are due and whose window has ended. It relies on orchestration_members_waiting.
func (s *Orchestrations) Missed(ctx context.Context, id string, now time.Time, limit int) ([]*orchestration.Member, error) {
	return members(ctx, s.read, "find members that have missed their window", `
WHERE m.orchestration_id = $1::uuid AND `+waiting+` AND m.due_at <= $2 AND m.window_end <= $2 LIMIT $3`, id, now, limit)
}

// Postpone writes when waiting members are due.
func (s *Orchestrations) Postpone(ctx context.Context, list []*orchestration.Member, now time.Time) error {
	var id, due, begin, end array
	for _, m := range list {
		id.raw(m.OperationID)
		due.time(m.DueAt)
		begin.time(m.WindowBegin)
		end.time(m.WindowEnd)
	}
	_, err := s.write.ExecContext(ctx, `
UPDATE orchestrator.orchestration_members m SET due_at = v.due_at, window_begin = v.window_begin, window_end = v.window_end, updated_at = $5
FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::timestamptz[]) AS v(operation_id, due_at, window_begin, window_end)
WHERE m.operation_id = v.operation_id AND `+waiting, &id, &due, &begin, &end, now)
	if err != nil {
		return fmt.Errorf("postpone members: %w", err)
	}
	return nil
}

// Claim makes as many due members in progress as workers leaves room for, and returns how many. It relies on
// orchestration_members_waiting and orchestration_members_in_progress.
func (s *Orchestrations) Claim(ctx context.Context, id string, workers int, now time.Time) (claimed int, err error) {
	err = s.locked(ctx, id, func(tx *sqlx.Tx, o *orchestration.Orchestration) error {
		if o.State != orchestration.InProgress && o.State != orchestration.Retrying {
			return nil
		}
		result, err := tx.ExecContext(ctx, `
WITH due AS (
    SELECT m.operation_id FROM orchestrator.orchestration_members m
    WHERE m.orchestration_id = $1::uuid AND `+waiting+` AND m.due_at <= $2 AND (m.window_end IS NULL OR m.window_end > $2)
    ORDER BY m.due_at, m.operation_id
    LIMIT greatest(0, $3 - (SELECT count(*) FROM orchestrator.orchestration_members p
        WHERE p.orchestration_id = $1::uuid AND p.state = 'in progress'))
)
UPDATE orchestrator.orchestration_members m SET state = 'in progress', asked_at = $2, updated_at = $2
FROM due WHERE m.operation_id = due.operation_id`, id, now, workers)
		if err != nil {
			return fmt.Errorf("claim members: %w", err)
		}
		n, err := result.RowsAffected()
		if claimed = int(n); err != nil || claimed == 0 || o.State == orchestration.InProgress {
			return err
		}
		o.State, o.UpdatedAt = orchestration.InProgress, now
		return update(ctx, tx, o)
	})
	if err != nil {
		return 0, err
	}
	return claimed, nil
}

// Unrecorded returns members in progress that the broker has not confirmed, or confirmed before a time although their
// operation has not arrived.
func (s *Orchestrations) Unrecorded(ctx context.Context, id string, before time.Time) ([]*orchestration.Member, error) {
	return members(ctx, s.write, "find members without an operation", `
WHERE m.orchestration_id = $1::uuid AND m.state = 'in progress' AND (NOT m.recorded OR m.asked_at < $2
    AND NOT EXISTS (SELECT FROM orchestrator.operations o WHERE o.id = m.operation_id))
ORDER BY m.operation_id`, id, before)
}

// Recorded writes what the broker has answered: refused is the reason by operation id.
func (s *Orchestrations) Recorded(ctx context.Context, recorded []string, refused map[string]string, now time.Time) error {
	var id, no, reason array
	for _, operation := range recorded {
		id.raw(operation)
	}
	for operation, text := range refused {
		no.raw(operation)
		reason.text(clean(text))
	}
	_, err := s.write.ExecContext(ctx, `
WITH refused AS (
    UPDATE orchestrator.orchestration_members m SET state = 'skipped', description = v.reason, updated_at = $4
    FROM unnest($2::uuid[], $3::text[]) AS v(operation_id, reason) WHERE m.operation_id = v.operation_id AND m.state = 'in progress'
)
UPDATE orchestrator.orchestration_members m SET recorded = true, asked_at = $4
WHERE m.operation_id = ANY($1::uuid[]) AND m.state = 'in progress'`, &id, &no, &reason, now)
	if err != nil {
		return fmt.Errorf("write the broker's answer: %w", err)
	}
	return nil
}

// Queued names the operations of members in progress that wait for their turn.
func (s *Orchestrations) Queued(ctx context.Context, id string) ([]string, error) {
	var found []string
	err := s.read.SelectContext(ctx, &found, `
SELECT o.id::text FROM orchestrator.orchestration_members m JOIN orchestrator.operations o ON o.id = m.operation_id
WHERE m.orchestration_id = $1::uuid AND m.state = 'in progress' AND o.state = 'pending'`, id)
	if err != nil {
		return nil, fmt.Errorf("find queued operations: %w", err)
	}
	return found, nil
}

// Conclude ends the orchestration if all of its members have ended. It also returns when the next waiting member is due,
// zero when none waits, and how many members are in progress.
func (s *Orchestrations) Conclude(
	ctx context.Context, id string, now time.Time,
) (o *orchestration.Orchestration, due time.Time, inProgress int, err error) {
	err = s.locked(ctx, id, func(tx *sqlx.Tx, locked *orchestration.Orchestration) error {
		o = locked
		if o.State == orchestration.Pending || o.State.Final() {
			return nil
		}
		// Looking whether any is left is cheap, counting all is not.
		var next sql.NullTime
		if err := tx.QueryRowContext(ctx, `
SELECT (SELECT min(m.due_at) FROM orchestrator.orchestration_members m WHERE m.orchestration_id = $1::uuid AND `+waiting+`),
    (SELECT count(*) FROM orchestrator.orchestration_members m WHERE m.orchestration_id = $1::uuid AND m.state = 'in progress')`,
			id).Scan(&next, &inProgress); err != nil {
			return fmt.Errorf("look for members that have not ended: %w", err)
		}
		if due = utc(next); next.Valid || inProgress > 0 {
			return nil
		}
		stats, err := stats(ctx, tx, id)
		if err != nil {
			return err
		}
		state, ended := stats.Ended(o.State)
		if !ended {
			return nil
		}
		if o.State != orchestration.Canceling {
			o.Description = stats.String()
		}
		o.State, o.UpdatedAt = state, now
		return update(ctx, tx, o)
	})
	if err != nil {
		return nil, time.Time{}, 0, err
	}
	return o, due, inProgress, nil
}

// Stats counts the members of an orchestration by state, those apart that others have taken the place of.
func (s *Orchestrations) Stats(ctx context.Context, id string) (orchestration.Stats, error) {
	return stats(ctx, s.read, id)
}

func stats(ctx context.Context, q sqlx.QueryerContext, id string) (orchestration.Stats, error) {
	rows, err := q.QueryContext(ctx, `
SELECT state, count(*) FROM orchestrator.orchestration_members WHERE orchestration_id = $1::uuid AND retried_as IS NULL GROUP BY state`, id)
	if err != nil {
		return nil, fmt.Errorf("count members: %w", err)
	}
	defer rows.Close()
	counts := orchestration.Stats{}
	for rows.Next() {
		var state orchestration.State
		var n int
		if err := rows.Scan(&state, &n); err != nil {
			return nil, fmt.Errorf("count members: %w", err)
		}
		counts[state] = n
	}
	return counts, rows.Err()
}

// Cancel cancels what waits, and lets the orchestration end when what is in progress has ended. An orchestration that has
// ended, or is being canceled, stays as it is. The error is ErrNotFound when there is none.
func (s *Orchestrations) Cancel(ctx context.Context, id string, now time.Time) error {
	return s.locked(ctx, id, func(tx *sqlx.Tx, o *orchestration.Orchestration) error {
		if o.State.Final() || o.State == orchestration.Canceling {
			return nil
		}
		_, err := tx.ExecContext(ctx, `
UPDATE orchestrator.orchestration_members m SET state = 'canceled', description = $3, updated_at = $2
WHERE m.orchestration_id = $1::uuid AND `+waiting, id, now, orchestration.CanceledDescription)
		if err != nil {
			return fmt.Errorf("cancel members: %w", err)
		}
		o.State, o.Description, o.UpdatedAt, o.DueAt = orchestration.Canceling, orchestration.CanceledDescription, now, time.Time{}
		return update(ctx, tx, o)
	})
}

// Retry replaces failed members by new ones: those named by operation ids, or all. The error is ErrNotFound when there is
// no such orchestration, and wraps orchestration.ErrNotPossible when its state does not allow it.
func (s *Orchestrations) Retry(
	ctx context.Context, id string, operations []string, immediate bool, now time.Time,
) (r orchestration.Retries, err error) {
	err = s.locked(ctx, id, func(tx *sqlx.Tx, o *orchestration.Orchestration) error {
		found, err := candidates(ctx, tx, o, operations)
		if err != nil {
			return err
		}
		if r, err = orchestration.Retry(o, operations, found, immediate, now); err != nil || len(r.New) == 0 {
			return err
		}
		var c memberArrays
		var old, next array
		for i, m := range r.New {
			if err := c.add(m); err != nil {
				return err
			}
			old.raw(r.Replaced[i])
			next.raw(m.OperationID)
		}
		_, err = tx.ExecContext(ctx, `
UPDATE orchestrator.orchestration_members m SET retried_as = v.next, updated_at = $3
FROM unnest($1::uuid[], $2::uuid[]) AS v(operation_id, next) WHERE m.operation_id = v.operation_id`, &old, &next, now)
		if err != nil {
			return fmt.Errorf("replace members: %w", err)
		}
		if err := c.insert(ctx, tx, ""); err != nil {
			return err
		}
		o.State, o.Description, o.UpdatedAt = r.State, r.Description, now
		return update(ctx, tx, o)
	})
	return r, err
}

// candidates are the members that may be retried. It relies on orchestration_members_instance for the newest upgrade.
func candidates(ctx context.Context, tx *sqlx.Tx, o *orchestration.Orchestration, operations []string) ([]orchestration.Candidate, error) {
	where, args := ` AND m.state = 'failed' AND m.retried_as IS NULL`, []any{o.ID, string(o.Type)}
	if len(operations) > 0 {
		var ids array
		for _, id := range operations {
			if parsed, err := uuid.Parse(id); err == nil {
				ids.raw(parsed.String())
			}
		}
		where, args = ` AND m.operation_id = ANY($3::uuid[])`, append(args, &ids)
	}
	rows, err := tx.QueryContext(ctx, `SELECT`+memberColumns+`, NOT EXISTS (
    SELECT FROM orchestrator.orchestration_members n JOIN orchestrator.orchestrations p ON p.id = n.orchestration_id
    WHERE n.instance_id = m.instance_id AND n.operation_id > m.operation_id AND p.type = $2 AND n.state NOT IN ('canceled', 'skipped'))`+
		fromMembers+` WHERE m.orchestration_id = $1::uuid`+where+` ORDER BY m.operation_id`, args...)
	if err != nil {
		return nil, fmt.Errorf("find members to retry: %w", err)
	}
	defer rows.Close()
	var found []orchestration.Candidate
	for rows.Next() {
		var c orchestration.Candidate
		if err := scanMember(rows, &c.Member, &c.Newest); err != nil {
			return nil, fmt.Errorf("find members to retry: %w", err)
		}
		found = append(found, c)
	}
	return found, rows.Err()
}

// MemberFilter selects members of an orchestration; an empty state selects all but those that others have taken the place of.
type MemberFilter struct {
	State orchestration.State
	// Limit and Offset cut a page out of the list, in the order of operation ids.
	Limit, Offset int
}

// Members returns a page of the members of an orchestration, and how many there are in all.
func (s *Orchestrations) Members(
	ctx context.Context, id string, f MemberFilter,
) (page []*orchestration.Member, total int, err error) {
	where, args := ` WHERE m.orchestration_id = $1::uuid AND m.retried_as IS NULL`, []any{id}
	if f.State != "" {
		where, args = where+` AND m.state = $2`, append(args, string(f.State))
	}
	if err := s.read.GetContext(ctx, &total, `SELECT count(*)`+fromMembers+where, args...); err != nil {
		return nil, 0, fmt.Errorf("count members: %w", err)
	}
	where += fmt.Sprintf(" ORDER BY m.operation_id LIMIT $%d OFFSET $%d", len(args)+1, len(args)+2)
	page, err = members(ctx, s.read, "list members", where, append(args, f.Limit, f.Offset)...)
	return page, total, err
}

// Member returns a member of an orchestration, or ErrNotFound.
func (s *Orchestrations) Member(ctx context.Context, id, operationID string) (*orchestration.Member, error) {
	parsed, err := uuid.Parse(operationID)
	if err != nil {
		return nil, ErrNotFound
	}
	found, err := members(ctx, s.read, "read member", ` WHERE m.operation_id = $1::uuid AND m.orchestration_id = $2::uuid`, parsed.String(), id)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, ErrNotFound
	}
	return found[0], nil
}

// members reads members; what completes the text of an error.
func members(ctx context.Context, q sqlx.QueryerContext, what, where string, args ...any) ([]*orchestration.Member, error) {
	rows, err := q.QueryContext(ctx, `SELECT`+memberColumns+fromMembers+where, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer rows.Close()
	var found []*orchestration.Member
	for rows.Next() {
		var m orchestration.Member
		if err := scanMember(rows, &m); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		found = append(found, &m)
	}
	return found, rows.Err()
}

func scanMember(rows *sql.Rows, m *orchestration.Member, more ...any) error {
	var window []byte
	var begin, end sql.NullTime
	err := rows.Scan(append([]any{
		&m.OperationID, &m.OrchestrationID, &m.InstanceID, &m.RuntimeID, &m.GlobalAccountID, &m.SubaccountID, &m.Plan.ID, &m.Plan.Name,
		&m.ShootName, &window, &m.State, &m.Description, &m.DueAt, &begin, &end, &m.RetriedAs, &m.UpdatedAt,
	}, more...)...)
	if err != nil {
		return err
	}
	m.DueAt, m.UpdatedAt, m.WindowBegin, m.WindowEnd = m.DueAt.UTC(), m.UpdatedAt.UTC(), utc(begin), utc(end)
	if len(window) > 0 {
		m.Window = &orchestration.Window{}
		if err := json.Unmarshal(window, m.Window); err != nil {
			return fmt.Errorf("member %s: decode maintenance window: %w", m.OperationID, err)
		}
	}
	return nil
}

// Event is a line of the history of an operation, with what is needed to show it alone.
type Event struct {
	Line
	OperationID, InstanceID string
	// Definition is the hash of the process definition.
	Definition string
}

// Events returns the newest lines of the histories of operations, in the order of time: of the operations named, of those on
// the instances named, or of those that are both. What is no UUID is left out. It relies on the primary keys and on
// operations_instance.
func (s *Orchestrations) Events(ctx context.Context, operationIDs, instanceIDs []string, limit int) ([]Event, error) {
	var conditions []string
	var args []any
	for _, c := range []struct {
		condition string
		ids       []string
		isUUID    bool
	}{{"o.id = ANY($%d::uuid[])", operationIDs, true}, {"o.instance_id = ANY($%d::text[])", instanceIDs, false}} {
		if len(c.ids) == 0 {
			continue
		}
		var list array
		for _, id := range c.ids {
			parsed, err := uuid.Parse(id)
			switch {
			case !c.isUUID:
				list.text(clean(id))
			case err == nil:
				list.raw(parsed.String())
			}
		}
		args = append(args, &list)
		conditions = append(conditions, fmt.Sprintf(c.condition, len(args)))
	}
	if len(conditions) == 0 {
		return nil, errors.New("read events: no operation and no instance is named")
	}
	args = append(args, limit)
	rows, err := s.read.QueryContext(ctx, fmt.Sprintf(`
SELECT * FROM (
    SELECT h.cursor, h.stage, h.step, h.stage_attempt, h.step_attempt, h.started_at, h.finished_at, h.kind,
        COALESCE(h.worker_version, '') AS worker_version, COALESCE(h.message, '') AS message, h.error,
        h.operation_id::text AS operation_id, o.instance_id, r.definition
    FROM orchestrator.operations o JOIN orchestrator.requests r ON r.operation_id = o.id
    JOIN orchestrator.history h ON h.operation_id = o.id
    WHERE %s ORDER BY h.finished_at DESC, h.operation_id DESC, h.cursor DESC LIMIT $%d
) e ORDER BY e.finished_at, e.operation_id, e.cursor`, strings.Join(conditions, " AND "), len(args)), args...)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer rows.Close()
	var events []Event
	for rows.Next() {
		var e Event
		if err := scanEvent(rows, &e); err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
		events = append(events, e)
	}
	return events, rows.Err()
}

func scanEvent(rows *sql.Rows, e *Event) error {
	var failure []byte
	err := rows.Scan(&e.Cursor, &e.Stage, &e.Step, &e.StageAttempt, &e.StepAttempt, &e.StartedAt, &e.FinishedAt, &e.Kind,
		&e.WorkerVersion, &e.Message, &failure, &e.OperationID, &e.InstanceID, &e.Definition)
	if err != nil {
		return err
	}
	e.StartedAt, e.FinishedAt = e.StartedAt.UTC(), e.FinishedAt.UTC()
	if len(failure) > 0 {
		e.Error = &event.Error{}
		if err := json.Unmarshal(failure, e.Error); err != nil {
			return fmt.Errorf("decode error: %w", err)
		}
	}
	return nil
}
