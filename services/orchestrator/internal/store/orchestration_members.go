package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
)

// Settle copies the final states of operations to their members in progress, and returns their numbers by state. Members whose operations were
// withdrawn wait again, with new operations, and are not counted, unless the orchestration is being cancelled. It relies on
// orchestration_members_in_progress and the primary key of operations.
func (s *Orchestrations) Settle(ctx context.Context, id string, now time.Time) (orchestration.Stats, error) {
	stats := orchestration.Stats{}
	err := s.locked(ctx, id, func(tx *sqlx.Tx, o *orchestration.Orchestration) error {
		var withdrawn array
		n := 0
		err := query(ctx, tx, `
UPDATE orchestrator.orchestration_members m SET
    state = CASE o.state WHEN 'cancelled' THEN 'canceled' ELSE o.state END, updated_at = $2,
    description = COALESCE(CASE WHEN o.state = 'cancelled' THEN o.cancel_reason END,
        CASE WHEN o.state = 'failed' THEN o.error->>'message' END, o.message, '')
FROM orchestrator.operations o
WHERE m.orchestration_id = $1::uuid AND m.state = 'in progress' AND o.id = m.operation_id
    AND o.state IN ('succeeded', 'failed', 'cancelled')
RETURNING m.operation_id::text, m.state, o.state = 'cancelled' AND o.cancel_reason IN ($3, $4)`,
			[]any{id, now, orchestration.PausedReason, orchestration.MissedReason}, func(rows *sql.Rows) error {
				var operation string
				var state orchestration.State
				var again sql.NullBool
				if err := rows.Scan(&operation, &state, &again); err != nil {
					return err
				}
				if again.Bool && o.State != orchestration.Canceling {
					withdrawn.raw(operation)
					n++
				} else {
					stats[state]++
				}
				return nil
			})
		if err != nil || n == 0 {
			return err
		}
		return again(ctx, tx, &withdrawn, now)
	})
	if err != nil {
		return nil, fmt.Errorf("settle members: %w", err)
	}
	return stats, nil
}

// again replaces members with the given operations by waiting ones with new operations.
func again(ctx context.Context, tx *sqlx.Tx, operations *array, now time.Time) error {
	old, err := members(ctx, tx, "find withdrawn members", ` WHERE m.operation_id = ANY($1::uuid[]) ORDER BY m.operation_id`, operations)
	if err != nil {
		return err
	}
	replaced, next := make([]string, len(old)), make([]*orchestration.Member, len(old))
	for i, m := range old {
		// A retry that ignores windows goes on to ignore them.
		immediate := m.Window != nil && m.WindowEnd.IsZero()
		replaced[i], next[i] = m.OperationID, m.Again(immediate, now)
		next[i].State = orchestration.Pending
	}
	return replace(ctx, tx, replaced, next, now)
}

// ReopenMembers sets the members of retried operations to in progress again, and their orchestrations as well if they have failed. It does
// not change members that the orchestration has retried itself, or members of a cancelled orchestration.
func (t *Tx) ReopenMembers(ctx context.Context, operationIDs []string, now time.Time) error {
	var operations array
	for _, id := range operationIDs {
		operations.raw(id)
	}
	var locked []string
	err := t.tx.SelectContext(ctx, &locked, `
SELECT o.id::text FROM orchestrator.orchestrations o
WHERE o.id IN (SELECT m.orchestration_id FROM orchestrator.orchestration_members m WHERE m.operation_id = ANY($1::uuid[]))
    AND o.state IN ('in progress', 'retrying', 'paused', 'failed') ORDER BY o.id FOR UPDATE`, &operations)
	if err != nil {
		return fmt.Errorf("lock the orchestrations of operations: %w", err)
	}
	if len(locked) == 0 {
		return nil
	}
	var orchestrations array
	for _, id := range locked {
		orchestrations.raw(id)
	}
	_, err = t.tx.ExecContext(ctx, `
WITH member AS (
    UPDATE orchestrator.orchestration_members m SET state = 'in progress', description = '', updated_at = $3
    WHERE m.operation_id = ANY($2::uuid[]) AND m.orchestration_id = ANY($1::uuid[]) AND m.state = 'failed' AND m.retried_as IS NULL
    RETURNING m.orchestration_id, m.operation_id
), reopened AS (
    SELECT orchestration_id, 'an operator has retried ' || CASE count(*) WHEN 1 THEN 'operation ' || min(operation_id::text)
        ELSE count(*) || ' operations' END AS description FROM member GROUP BY orchestration_id
)
UPDATE orchestrator.orchestrations o SET state = 'in progress', description = r.description, updated_at = $3, active_since = $3
FROM reopened r WHERE o.id = r.orchestration_id AND o.state = 'failed'`, &orchestrations, &operations, now)
	if err != nil {
		return fmt.Errorf("reopen the members of operations: %w", err)
	}
	// An accepted failure that is retried must not cover a later one. It relies on orchestration_members_failed.
	_, err = t.tx.ExecContext(ctx, `
UPDATE orchestrator.orchestrations o SET failures_accepted = least(o.failures_accepted, (SELECT count(*)
    FROM orchestrator.orchestration_members m WHERE m.orchestration_id = o.id AND m.state = 'failed' AND m.retried_as IS NULL))
WHERE o.id = ANY($1::uuid[]) AND o.failures_accepted > 0`, &orchestrations)
	if err != nil {
		return fmt.Errorf("count the accepted failures of orchestrations: %w", err)
	}
	return nil
}

// Missed returns waiting members that are due and whose maintenance window has ended. It relies on orchestration_members_waiting.
func (s *Orchestrations) Missed(ctx context.Context, id string, now time.Time, limit int) ([]*orchestration.Member, error) {
	return members(ctx, s.read, "find members that have missed their window", `
WHERE m.orchestration_id = $1::uuid AND `+waiting+` AND m.due_at <= $2 AND m.window_end <= $2 LIMIT $3`, id, now, limit)
}

// Postpone writes the due times of waiting members.
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

// Claim sets due members to in progress, as many as the orchestration admits, and returns their number. It relies on
// orchestration_members_waiting, orchestration_members_in_progress, orchestration_members_failed and orchestration_members_canary.
func (s *Orchestrations) Claim(ctx context.Context, id string, now time.Time) (claimed int, err error) {
	err = s.locked(ctx, id, func(tx *sqlx.Tx, o *orchestration.Orchestration) error {
		if !o.State.Running() {
			return nil
		}
		counts, err := memberCounts(ctx, tx, id)
		if err != nil {
			return err
		}
		room, changed := o.Admit(counts, now)
		if room.Workers > 0 {
			if claimed, err = claim(ctx, tx, id, room, now); err != nil {
				return err
			}
		}
		if claimed > 0 && o.State != orchestration.InProgress {
			o.State, o.UpdatedAt, changed = orchestration.InProgress, now, true
		}
		if !changed {
			return nil
		}
		return update(ctx, tx, o)
	})
	if err != nil {
		return 0, err
	}
	return claimed, nil
}

func memberCounts(ctx context.Context, tx *sqlx.Tx, id string) (orchestration.Counts, error) {
	c := orchestration.Counts{Canary: orchestration.Stats{}}
	err := tx.QueryRowContext(ctx, `
SELECT EXISTS (SELECT FROM orchestrator.orchestration_members m WHERE m.orchestration_id = $1::uuid AND `+waiting+`),
    (SELECT count(*) FROM orchestrator.orchestration_members m WHERE m.orchestration_id = $1::uuid AND m.state = 'in progress'),
    (SELECT count(*) FROM orchestrator.orchestration_members m
        WHERE m.orchestration_id = $1::uuid AND m.state = 'failed' AND m.retried_as IS NULL)`, id).Scan(&c.Waiting, &c.InProgress, &c.Failed)
	if err != nil {
		return c, fmt.Errorf("count members: %w", err)
	}
	err = query(ctx, tx, `
SELECT m.state, count(*) FROM orchestrator.orchestration_members m
WHERE m.orchestration_id = $1::uuid AND m.canary AND m.retried_as IS NULL GROUP BY m.state`, []any{id}, func(rows *sql.Rows) error {
		var state orchestration.State
		var n int
		err := rows.Scan(&state, &n)
		c.Canary[state] = n
		return err
	})
	if err != nil {
		return c, fmt.Errorf("count the canary: %w", err)
	}
	return c, nil
}

// claim sets due members to in progress, those of the canary first.
func claim(ctx context.Context, tx *sqlx.Tx, id string, room orchestration.Room, now time.Time) (int, error) {
	result, err := tx.ExecContext(ctx, `
WITH again AS (
    SELECT m.operation_id FROM orchestrator.orchestration_members m
    WHERE m.orchestration_id = $1::uuid AND `+waiting+` AND m.canary AND m.due_at <= $2 AND (m.window_end IS NULL OR m.window_end > $2)
    ORDER BY m.due_at, m.operation_id LIMIT $3
), others AS (
    SELECT m.operation_id FROM orchestrator.orchestration_members m
    WHERE m.orchestration_id = $1::uuid AND `+waiting+` AND NOT m.canary AND m.due_at <= $2 AND (m.window_end IS NULL OR m.window_end > $2)
    ORDER BY m.due_at, m.operation_id LIMIT least($4, $3 - (SELECT count(*) FROM again))
)
UPDATE orchestrator.orchestration_members m SET state = 'in progress', canary = m.canary OR $5, asked_at = $2, updated_at = $2
FROM (SELECT operation_id FROM again UNION ALL SELECT operation_id FROM others) due WHERE m.operation_id = due.operation_id`,
		id, now, room.Workers, room.Others, room.Canary)
	if err != nil {
		return 0, fmt.Errorf("claim members: %w", err)
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// Unrecorded returns members in progress that the broker has not confirmed, or that it confirmed before a time and whose operation has not
// arrived.
func (s *Orchestrations) Unrecorded(ctx context.Context, id string, before time.Time) ([]*orchestration.Member, error) {
	return members(ctx, s.write, "find members without an operation", `
WHERE m.orchestration_id = $1::uuid AND m.state = 'in progress' AND (NOT m.recorded OR m.asked_at < $2
    AND NOT EXISTS (SELECT FROM orchestrator.operations o WHERE o.id = m.operation_id))
ORDER BY m.operation_id`, id, before)
}

// Recorded writes the answer of the broker: the recorded operations, and the reasons of refused ones by operation id.
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

// NotRecorded stores that the broker does not know the operations of members in progress, and returns the number of members by their new
// states. They wait again with new operations. If the orchestration is being cancelled, they are canceled. Members whose operations have
// arrived stay in progress.
func (s *Orchestrations) NotRecorded(ctx context.Context, id string, operations []string, now time.Time) (orchestration.Stats, error) {
	var ids array
	for _, operation := range operations {
		ids.raw(operation)
	}
	var stats orchestration.Stats
	err := s.locked(ctx, id, func(tx *sqlx.Tx, o *orchestration.Orchestration) error {
		reason := orchestration.MissedReason
		if o.State == orchestration.Canceling {
			reason = orchestration.CanceledDescription
		}
		var ended array
		n := 0
		err := query(ctx, tx, `
UPDATE orchestrator.orchestration_members m SET state = 'canceled', description = $3, updated_at = $4
WHERE m.orchestration_id = $1::uuid AND m.operation_id = ANY($2::uuid[]) AND m.state = 'in progress'
    AND NOT EXISTS (SELECT FROM orchestrator.operations o WHERE o.id = m.operation_id)
RETURNING m.operation_id::text`, []any{id, &ids, reason, now}, func(rows *sql.Rows) error {
			var operation string
			err := rows.Scan(&operation)
			ended.raw(operation)
			n++
			return err
		})
		switch {
		case err != nil || n == 0:
			return err
		case o.State == orchestration.Canceling:
			stats = orchestration.Stats{orchestration.Canceled: n}
			return nil
		}
		stats = orchestration.Stats{orchestration.Pending: n}
		return again(ctx, tx, &ended, now)
	})
	if err != nil {
		return nil, fmt.Errorf("write that operations are not recorded: %w", err)
	}
	return stats, nil
}

// Queued returns the ids of pending operations of members in progress. If fresh, it omits operations that have started before and are retried. If
// windowEnd is not zero, it returns only operations whose window has ended by then. It relies on orchestration_members_in_progress.
func (s *Orchestrations) Queued(ctx context.Context, id string, fresh bool, windowEnd time.Time) ([]string, error) {
	var found []string
	err := s.read.SelectContext(ctx, &found, `
SELECT o.id::text FROM orchestrator.orchestration_members m JOIN orchestrator.operations o ON o.id = m.operation_id
WHERE m.orchestration_id = $1::uuid AND m.state = 'in progress' AND o.state = 'pending' AND (o.started_at IS NULL OR NOT $2)
    AND ($3::timestamptz IS NULL OR m.window_end <= $3)`, id, fresh, nullTime(windowEnd))
	if err != nil {
		return nil, fmt.Errorf("find queued operations: %w", err)
	}
	return found, nil
}

// candidates returns the members that may be retried. The newest upgrade is the one that the broker was asked for last: IDs are chosen when an
// orchestration is ordered, which may be days earlier. A member that was never asked for counts from the start of its orchestration. It relies
// on orchestration_members_instance.
func candidates(ctx context.Context, tx *sqlx.Tx, o *orchestration.Orchestration, operations []string) ([]orchestration.Candidate, error) {
	var states array
	for _, state := range o.Retryable() {
		states.text(string(state))
	}
	since := o.StartedAt
	if since.IsZero() {
		since = o.CreatedAt
	}
	where, args := ` AND m.state = ANY($3::text[]) AND m.retried_as IS NULL`, []any{o.ID, string(o.Type), &states, since}
	if len(operations) > 0 {
		var ids array
		for _, id := range operations {
			if parsed, err := uuid.Parse(id); err == nil {
				ids.raw(parsed.String())
			}
		}
		where, args[2] = ` AND m.operation_id = ANY($3::uuid[])`, &ids
	}
	return collect(ctx, tx, "find members to retry", `SELECT`+memberColumns+`, NOT EXISTS (
    SELECT FROM orchestrator.orchestration_members n JOIN orchestrator.orchestrations p ON p.id = n.orchestration_id
    WHERE n.instance_id = m.instance_id AND n.asked_at > COALESCE(m.asked_at, $4) AND p.type = $2 AND n.state NOT IN ('canceled', 'skipped')
        AND NOT COALESCE((p.parameters->>'dryRun')::boolean, false))`+
		fromMembers+` WHERE m.orchestration_id = $1::uuid`+where+` ORDER BY m.operation_id`, args, func(rows *sql.Rows, c *orchestration.Candidate) error {
		return scanMember(rows, &c.Member, &c.Newest)
	})
}

// MemberFilter selects members of an orchestration; an empty state selects all members that were not replaced by a retry.
type MemberFilter struct {
	State orchestration.State
	// Limit and Offset select a page of the list, in the order of operation ids.
	Limit, Offset int
}

// Members returns a page of the members of an orchestration, and the total number.
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

// Membership is a member with what its instance shows of the orchestration.
type Membership struct {
	orchestration.Member
	DryRun bool
}

// Memberships returns the newest members of orchestrations for an instance. It relies on orchestration_members_instance.
func (s *Orchestrations) Memberships(ctx context.Context, instanceID string, limit int) ([]Membership, error) {
	return collect(ctx, s.read, "find the orchestrations of an instance", `
SELECT`+memberColumns+`, COALESCE((o.parameters->>'dryRun')::boolean, false)`+fromMembers+`
JOIN orchestrator.orchestrations o ON o.id = m.orchestration_id WHERE m.instance_id = $1 ORDER BY m.operation_id DESC LIMIT $2`,
		[]any{clean(instanceID), limit}, func(rows *sql.Rows, m *Membership) error { return scanMember(rows, &m.Member, &m.DryRun) })
}

// members reads members; what is the prefix of errors.
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
		&m.ShootName, &window, &m.State, &m.Description, &m.DueAt, &begin, &end, &m.RetriedAs, &m.Canary, &m.UpdatedAt,
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

// memberArrays are the columns of new members.
type memberArrays struct {
	id, orchestration, instance, runtime, account, subaccount, planID, planName, shoot array
	window, state, description, due, begin, end, canary, updated                       array
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
	c.canary.raw(strconv.FormatBool(m.Canary))
	c.updated.time(m.UpdatedAt)
	return nil
}

func (c *memberArrays) insert(ctx context.Context, tx *sqlx.Tx, conflict string) error {
	_, err := tx.ExecContext(ctx, `
INSERT INTO orchestrator.orchestration_members (operation_id, orchestration_id, instance_id, runtime_id, global_account_id,
    subaccount_id, plan_id, plan_name, shoot_name, window_rule, state, description, due_at, window_begin, window_end, updated_at, canary)
SELECT v.operation_id, v.orchestration_id, v.instance_id, v.runtime_id, v.global_account_id, v.subaccount_id, v.plan_id, v.plan_name,
    v.shoot_name, v.window_rule::jsonb, v.state, v.description, v.due_at, v.window_begin, v.window_end, v.updated_at, v.canary
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
    $11::text[], $12::text[], $13::timestamptz[], $14::timestamptz[], $15::timestamptz[], $16::timestamptz[],
    $17::boolean[])
    AS v(operation_id, orchestration_id, instance_id, runtime_id, global_account_id, subaccount_id, plan_id, plan_name, shoot_name,
        window_rule, state, description, due_at, window_begin, window_end, updated_at, canary)`+conflict,
		&c.id, &c.orchestration, &c.instance, &c.runtime, &c.account, &c.subaccount, &c.planID, &c.planName, &c.shoot, &c.window,
		&c.state, &c.description, &c.due, &c.begin, &c.end, &c.updated, &c.canary)
	if err != nil {
		return fmt.Errorf("insert members: %w", err)
	}
	return nil
}
