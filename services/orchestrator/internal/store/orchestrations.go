package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
)

// Orchestrations stores orchestrations and their members. Every change of an orchestration locks its row first.
type Orchestrations struct{ write, read *sqlx.DB }

// NewOrchestrations returns the Orchestrations of a migrated database. A round of an orchestration needs two connections of write.
func NewOrchestrations(write, read *sqlx.DB) *Orchestrations {
	return &Orchestrations{write: write, read: read}
}

const (
	orchestrationColumns = ` o.id::text, o.type, o.state, o.description, o.parameters, o.created_at, o.updated_at, o.due_at, o.started_at,
    o.active_since, o.pause, o.canary_passed, o.failures_accepted, o.members, o.notification_failing_since,
    o.cancel_notified
FROM orchestrator.orchestrations o`
	memberColumns = ` m.operation_id::text, m.orchestration_id::text, m.instance_id, m.runtime_id, m.global_account_id, m.subaccount_id,
    m.plan_id, m.plan_name, m.shoot_name, m.window_rule, m.state, m.description, m.due_at, m.window_begin, m.window_end,
    COALESCE(m.retried_as::text, ''), m.canary, m.updated_at`
	fromMembers = `
FROM orchestrator.orchestration_members m`
	// waiting and unfinished are the conditions of partial indexes.
	waiting    = `m.state IN ('pending', 'retrying')`
	unfinished = `state IN ('pending', 'in progress', 'retrying', 'paused', 'canceling')`
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

// Active returns the ids of unfinished orchestrations, oldest first. It relies on orchestrations_active.
func (s *Orchestrations) Active(ctx context.Context) ([]string, error) {
	var found []string
	if err := s.read.SelectContext(ctx, &found,
		`SELECT id::text FROM orchestrator.orchestrations WHERE `+unfinished+` ORDER BY arrived`); err != nil {
		return nil, fmt.Errorf("find active orchestrations: %w", err)
	}
	return found, nil
}

// Exclusively runs f unless another call for the same orchestration is running in any process, and reports whether it ran. The lock ends
// with the connection, so a killed process does not block others.
func (s *Orchestrations) Exclusively(ctx context.Context, id string, f func(ctx context.Context) error) (bool, error) {
	return exclusively(ctx, s.write, "orchestration "+id, f)
}

// exclusively runs f under an advisory lock, unless another process has the lock, and reports whether it ran.
func exclusively(ctx context.Context, db *sqlx.DB, what string, f func(ctx context.Context) error) (bool, error) {
	key := fnv.New64a()
	_, _ = key.Write([]byte("keb " + what)) // a hash does not fail
	var locked bool
	err := postgres.InTx(ctx, db, func(tx *sqlx.Tx) error {
		if err := tx.GetContext(ctx, &locked, `SELECT pg_try_advisory_xact_lock($1)`, int64(key.Sum64())); err != nil {
			return fmt.Errorf("lock %s: %w", what, err)
		}
		if !locked {
			return nil
		}
		return f(ctx)
	})
	return locked, err
}

// OrchestrationFilter selects orchestrations; an empty state selects all.
type OrchestrationFilter struct {
	State orchestration.State
	// Limit and Offset select a page of the newest-first list.
	Limit, Offset int
}

// List returns a page of orchestrations, newest first, and the total number.
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

// locked locks the row of an orchestration and runs f.
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
		var parameters, pause []byte
		var due, started, active, notificationFailing sql.NullTime
		if err := rows.Scan(&o.ID, &o.Type, &o.State, &o.Description, &parameters, &o.CreatedAt, &o.UpdatedAt, &due, &started, &active, &pause,
			&o.CanaryPassed, &o.FailuresAccepted, &o.Members, &notificationFailing, &o.CancelNotified); err != nil {
			return nil, err
		}
		o.CreatedAt, o.UpdatedAt, o.DueAt, o.StartedAt, o.ActiveSince = o.CreatedAt.UTC(), o.UpdatedAt.UTC(), utc(due), utc(started), utc(active)
		o.NotificationFailingSince = utc(notificationFailing)
		if len(pause) > 0 {
			o.Pause = &orchestration.Pause{}
			if err := json.Unmarshal(pause, o.Pause); err != nil {
				return nil, fmt.Errorf("orchestration %s: decode pause: %w", o.ID, err)
			}
		}
		if err := json.Unmarshal(parameters, &o.Parameters); err != nil {
			return nil, fmt.Errorf("orchestration %s: decode parameters: %w", o.ID, err)
		}
		found = append(found, &o)
	}
	return found, rows.Err()
}

// update writes the mutable columns of an orchestration.
func update(ctx context.Context, tx *sqlx.Tx, o *orchestration.Orchestration) error {
	var pause sql.NullString
	if o.Pause != nil {
		text, err := json.Marshal(o.Pause)
		if err != nil {
			return fmt.Errorf("write orchestration: encode pause: %w", err)
		}
		pause = sql.NullString{String: clean(string(text)), Valid: true}
	}
	_, err := tx.ExecContext(ctx, `
UPDATE orchestrator.orchestrations SET state = $2, description = $3, updated_at = $4, due_at = $5, started_at = $6, active_since = $7, pause = $8::jsonb,
    canary_passed = $9, failures_accepted = $10, members = $11, notification_failing_since = $12 WHERE id = $1::uuid`,
		o.ID, string(o.State), clean(o.Description), o.UpdatedAt, nullTime(o.DueAt), nullTime(o.StartedAt), nullTime(o.ActiveSince), pause,
		o.CanaryPassed, o.FailuresAccepted, o.Members, nullTime(o.NotificationFailingSince))
	if err != nil {
		return fmt.Errorf("write orchestration: %w", err)
	}
	return nil
}

func nullTime(t time.Time) sql.NullTime { return sql.NullTime{Time: t, Valid: !t.IsZero()} }

// Assign replaces the members of a pending orchestration, and writes its new state. An instance that is already a member keeps its
// operation id. The error wraps orchestration.ErrNotPossible if the orchestration is no longer pending.
func (s *Orchestrations) Assign(ctx context.Context, o *orchestration.Orchestration, members []*orchestration.Member) error {
	var c memberArrays
	for _, m := range members {
		if err := c.add(m); err != nil {
			return err
		}
	}
	return s.locked(ctx, o.ID, func(tx *sqlx.Tx, current *orchestration.Orchestration) error {
		if current.State != orchestration.Pending {
			return fmt.Errorf("%w: the orchestration is %s", orchestration.ErrNotPossible, current.State)
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

// Describe sets the description of an orchestration, unless it is paused or has ended. due is the time of the next target look-up of a pending
// orchestration. seen is the state that the description belongs to: only that of Canceling is written to an orchestration that is being
// cancelled.
func (s *Orchestrations) Describe(ctx context.Context, id string, seen orchestration.State, description string, due, now time.Time) error {
	return s.locked(ctx, id, func(tx *sqlx.Tx, o *orchestration.Orchestration) error {
		canceling := o.State == orchestration.Canceling
		if canceling != (seen == orchestration.Canceling) || o.State == orchestration.Paused || o.State.Final() {
			return nil
		}
		if o.State == orchestration.Pending {
			o.DueAt = due
		}
		o.Description = description
		if !canceling { // UpdatedAt is when the cancellation began
			o.UpdatedAt = now
		}
		return update(ctx, tx, o)
	})
}

// NotificationFailed stores that the announcement of an orchestration has failed, and returns when it failed first.
func (s *Orchestrations) NotificationFailed(ctx context.Context, id string, now time.Time) (since time.Time, err error) {
	err = s.locked(ctx, id, func(tx *sqlx.Tx, o *orchestration.Orchestration) error {
		if since = o.NotificationFailingSince; !since.IsZero() {
			return nil
		}
		since, o.NotificationFailingSince = now, now
		return update(ctx, tx, o)
	})
	return since, err
}

// CancelNotified stores that customers need no further notice of the cancellation of an orchestration.
func (s *Orchestrations) CancelNotified(ctx context.Context, id string) error {
	if _, err := s.write.ExecContext(ctx, `UPDATE orchestrator.orchestrations SET cancel_notified = true WHERE id = $1::uuid AND state = 'canceling'`, id); err != nil {
		return fmt.Errorf("write that a cancellation is announced: %w", err)
	}
	return nil
}

// Conclude ends the orchestration if all of its members have ended. It also returns the due time of the next waiting member, zero if none
// waits, and the number of members in progress. If the orchestration is being cancelled, and seen is another state, it does not end: the caller
// must notify customers of the cancellation first.
func (s *Orchestrations) Conclude(
	ctx context.Context, id string, seen orchestration.State, now time.Time,
) (o *orchestration.Orchestration, due time.Time, inProgress int, err error) {
	err = s.locked(ctx, id, func(tx *sqlx.Tx, locked *orchestration.Orchestration) error {
		o = locked
		if !o.Begun() || o.State.Final() {
			return nil
		}
		// Checking for unfinished members is cheap; counting all members is not.
		var next sql.NullTime
		if err := tx.QueryRowContext(ctx, `
SELECT (SELECT min(m.due_at) FROM orchestrator.orchestration_members m WHERE m.orchestration_id = $1::uuid AND `+waiting+`),
    (SELECT count(*) FROM orchestrator.orchestration_members m WHERE m.orchestration_id = $1::uuid AND m.state = 'in progress')`,
			id).Scan(&next, &inProgress); err != nil {
			return fmt.Errorf("look for members that have not ended: %w", err)
		}
		if due = utc(next); next.Valid || inProgress > 0 || o.State == orchestration.Canceling && seen != o.State {
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
		if o.Description = stats.String(); o.State == orchestration.Canceling {
			o.Description = orchestration.CanceledDescription
		}
		o.State, o.Pause, o.UpdatedAt = state, nil, now
		if err := update(ctx, tx, o); err != nil {
			return err
		}
		return count(ctx, tx, id, stats)
	})
	if err != nil {
		return nil, time.Time{}, 0, err
	}
	return o, due, inProgress, nil
}

func stats(ctx context.Context, q sqlx.QueryerContext, id string) (orchestration.Stats, error) {
	return pairs[orchestration.State, int](ctx, q, "count members", `
SELECT state, count(*) FROM orchestrator.orchestration_members WHERE orchestration_id = $1::uuid AND retried_as IS NULL GROUP BY state`, id)
}

// Cancel cancels waiting members. The orchestration ends when the members in progress have ended. Cancel does not change an orchestration
// that has ended or is being cancelled. The error is ErrNotFound if the orchestration does not exist.
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
		o.State, o.Description, o.UpdatedAt, o.DueAt, o.Pause = orchestration.Canceling, orchestration.CanceledDescription, now, time.Time{}, nil
		return update(ctx, tx, o)
	})
}

// Pause pauses an orchestration for an operator. From its return on, no member is claimed. The error is ErrNotFound, or wraps
// orchestration.ErrNotPossible.
func (s *Orchestrations) Pause(ctx context.Context, id, name string, now time.Time) (*orchestration.Orchestration, error) {
	return s.change(ctx, id, func(_ *sqlx.Tx, o *orchestration.Orchestration) (bool, error) { return o.PauseBy(name, now) })
}

// Resume continues a paused orchestration. The error is ErrNotFound, or wraps orchestration.ErrNotPossible.
func (s *Orchestrations) Resume(ctx context.Context, id, name string, now time.Time) (*orchestration.Orchestration, error) {
	return s.change(ctx, id, func(tx *sqlx.Tx, o *orchestration.Orchestration) (bool, error) {
		failed, err := failed(ctx, tx, id)
		if err != nil {
			return false, err
		}
		return o.Resume(name, failed, now)
	})
}

// Approve continues an orchestration whose canary has ended. The error is ErrNotFound, or wraps orchestration.ErrNotPossible.
func (s *Orchestrations) Approve(ctx context.Context, id, name string, now time.Time) (*orchestration.Orchestration, error) {
	return s.change(ctx, id, func(_ *sqlx.Tx, o *orchestration.Orchestration) (bool, error) { return true, o.Approve(name, now) })
}

// change locks an orchestration, changes it, and returns it.
func (s *Orchestrations) change(
	ctx context.Context, id string, f func(tx *sqlx.Tx, o *orchestration.Orchestration) (bool, error),
) (changed *orchestration.Orchestration, err error) {
	err = s.locked(ctx, id, func(tx *sqlx.Tx, o *orchestration.Orchestration) error {
		changed = o
		if write, err := f(tx, o); err != nil || !write {
			return err
		}
		return update(ctx, tx, o)
	})
	return changed, err
}

// failed counts the failed members. It relies on orchestration_members_failed.
func failed(ctx context.Context, tx *sqlx.Tx, id string) (n int, err error) {
	if err := tx.GetContext(ctx, &n, `
SELECT count(*) FROM orchestrator.orchestration_members
WHERE orchestration_id = $1::uuid AND state = 'failed' AND retried_as IS NULL`, id); err != nil {
		return 0, fmt.Errorf("count failed members: %w", err)
	}
	return n, nil
}

// Retry replaces members by new ones: those with the given operation ids, or all that can be retried. The error is ErrNotFound if the orchestration does
// not exist, and wraps orchestration.ErrNotPossible if its state does not allow a retry.
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
		if err := replace(ctx, tx, r.Replaced, r.New, now); err != nil {
			return err
		}
		n, err := failed(ctx, tx, id)
		if err != nil {
			return err
		}
		if o.State.Final() {
			o.FailuresAccepted, o.ActiveSince = n, now
		}
		o.FailuresAccepted = min(o.FailuresAccepted, n)
		o.State, o.Description, o.UpdatedAt = r.State, r.Description, now
		if o.StartedAt.IsZero() && o.State == orchestration.Retrying {
			o.StartedAt = now
			// It was cancelled before its start, which sets this.
			err := tx.GetContext(ctx, &o.Members, `
SELECT count(*) FROM orchestrator.orchestration_members WHERE orchestration_id = $1::uuid AND retried_as IS NULL AND state <> $2`,
				id, orchestration.Skipped)
			if err != nil {
				return fmt.Errorf("count members: %w", err)
			}
		}
		return update(ctx, tx, o)
	})
	return r, err
}

// replace adds members that take the place of others, which have the given operation ids.
func replace(ctx context.Context, tx *sqlx.Tx, replaced []string, members []*orchestration.Member, now time.Time) error {
	var c memberArrays
	var old, next array
	for i, m := range members {
		if err := c.add(m); err != nil {
			return err
		}
		old.raw(replaced[i])
		next.raw(m.OperationID)
	}
	_, err := tx.ExecContext(ctx, `
UPDATE orchestrator.orchestration_members m SET retried_as = v.next, updated_at = $3
FROM unnest($1::uuid[], $2::uuid[]) AS v(operation_id, next) WHERE m.operation_id = v.operation_id`, &old, &next, now)
	if err != nil {
		return fmt.Errorf("replace members: %w", err)
	}
	return c.insert(ctx, tx, "")
}

// count stores the numbers of members of an orchestration that has ended, so that lists need not count them.
func count(ctx context.Context, tx *sqlx.Tx, id string, stats orchestration.Stats) error {
	text, err := json.Marshal(stats)
	if err != nil {
		return fmt.Errorf("encode the numbers of members: %w", err)
	}
	_, err = tx.ExecContext(ctx, `UPDATE orchestrator.orchestrations SET counts = $2::jsonb, counted_at = updated_at WHERE id = $1::uuid`, id, string(text))
	if err != nil {
		return fmt.Errorf("store the numbers of members: %w", err)
	}
	return nil
}

const (
	// countedSQL reads what count has stored. It relies on the primary key.
	countedSQL = `
SELECT o.id::text, o.counts FROM orchestrator.orchestrations o
WHERE o.id = ANY($1::uuid[]) AND o.counted_at = o.updated_at AND o.state IN ('succeeded', 'failed', 'canceled')`
	// memberTallySQL relies on orchestration_members_list.
	memberTallySQL = `
SELECT m.orchestration_id::text, m.state, count(*), count(*) FILTER (WHERE m.updated_at >= o.active_since AND m.state IN ('succeeded', 'failed')),
    max(m.due_at) FILTER (WHERE ` + waiting + `)
FROM orchestrator.orchestrations o JOIN orchestrator.orchestration_members m ON m.orchestration_id = o.id
WHERE o.id = ANY($1::uuid[]) AND m.retried_as IS NULL GROUP BY m.orchestration_id, m.state`
	// failuresSQL relies on orchestration_members_failed.
	failuresSQL = `
SELECT m.description, count(*), min(m.operation_id::text)
FROM orchestrator.orchestration_members m
WHERE m.orchestration_id = $1::uuid AND m.state = 'failed' AND m.retried_as IS NULL
GROUP BY m.description ORDER BY count(*) DESC, m.description LIMIT 1000`
)

// Tallies counts the members of orchestrations. It does not read the members of those that have ended.
func (s *Orchestrations) Tallies(ctx context.Context, ids []string) (map[string]orchestration.Tally, error) {
	tallies := make(map[string]orchestration.Tally, len(ids))
	var all array
	for _, id := range ids {
		all.raw(id)
	}
	if len(ids) == 0 {
		return tallies, nil
	}
	err := query(ctx, s.read, countedSQL, []any{&all}, func(rows *sql.Rows) error {
		var id string
		var text []byte
		if err := rows.Scan(&id, &text); err != nil {
			return err
		}
		t := orchestration.Tally{}
		tallies[id] = t
		if err := json.Unmarshal(text, &t.Stats); err != nil {
			return err
		}
		tallies[id] = t
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the numbers of members: %w", err)
	}
	var left array
	for _, id := range ids {
		if _, counted := tallies[id]; !counted {
			left.raw(id)
		}
	}
	if len(tallies) == len(ids) {
		return tallies, nil
	}
	err = query(ctx, s.read, memberTallySQL, []any{&left}, func(rows *sql.Rows) error {
		var id string
		var state orchestration.State
		var n, recent int
		var due sql.NullTime
		if err := rows.Scan(&id, &state, &n, &recent, &due); err != nil {
			return err
		}
		t := tallies[id]
		if t.Stats == nil {
			t.Stats = orchestration.Stats{}
		}
		t.Stats[state], t.Recent = n, t.Recent+recent
		if at := utc(due); at.After(t.LastDue) {
			t.LastDue = at
		}
		tallies[id] = t
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count members: %w", err)
	}
	return tallies, nil
}

// Failures returns the errors of the failed members, the most frequent first, at most 1000.
func (s *Orchestrations) Failures(ctx context.Context, id string) (found []orchestration.Failure, err error) {
	err = query(ctx, s.read, failuresSQL, []any{id}, func(rows *sql.Rows) error {
		var f orchestration.Failure
		err := rows.Scan(&f.Message, &f.Count, &f.OperationID)
		found = append(found, f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the errors of members: %w", err)
	}
	return found, nil
}
