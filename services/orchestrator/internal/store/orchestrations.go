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
	orchestrationColumns = ` o.id::text, o.type, o.state, o.description, o.parameters, o.created_at, o.updated_at, o.due_at
FROM orchestrator.orchestrations o`
	memberColumns = ` m.operation_id::text, m.orchestration_id::text, m.instance_id, m.runtime_id, m.global_account_id, m.subaccount_id,
    m.plan_id, m.plan_name, m.shoot_name, m.window_rule, m.state, m.description, m.due_at, m.window_begin, m.window_end,
    COALESCE(m.retried_as::text, ''), m.updated_at`
	fromMembers = `
FROM orchestrator.orchestration_members m`
	// waiting and unfinished are the conditions of partial indexes.
	waiting    = `m.state IN ('pending', 'retrying')`
	unfinished = `state IN ('pending', 'in progress', 'retrying', 'canceling')`
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

// update writes the mutable columns of an orchestration.
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

// Describe sets the description of an orchestration, unless it is being cancelled or has ended. due is the time of the next target
// look-up of a pending orchestration.
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

// Conclude ends the orchestration if all of its members have ended. It also returns the due time of the next waiting member, zero if none
// waits, and the number of members in progress.
func (s *Orchestrations) Conclude(
	ctx context.Context, id string, now time.Time,
) (o *orchestration.Orchestration, due time.Time, inProgress int, err error) {
	err = s.locked(ctx, id, func(tx *sqlx.Tx, locked *orchestration.Orchestration) error {
		o = locked
		if o.State == orchestration.Pending || o.State.Final() {
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

// Stats counts the members of an orchestration by state, without members that were replaced by a retry.
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
		o.State, o.Description, o.UpdatedAt, o.DueAt = orchestration.Canceling, orchestration.CanceledDescription, now, time.Time{}
		return update(ctx, tx, o)
	})
}

// Retry replaces failed members by new ones: those with the given operation ids, or all. The error is ErrNotFound if the orchestration does
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
