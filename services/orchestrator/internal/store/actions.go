package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// Outcome is the outcome of an action.
type Outcome string

// The outcomes. OutcomeBegun is replaced by another one, unless the process ends before that.
const (
	OutcomeBegun   Outcome = "begun"
	OutcomeDone    Outcome = "done"
	OutcomeRefused Outcome = "refused"
	OutcomeFailed  Outcome = "failed"
)

const (
	// maxReason is the maximum stored size of a reason, a name or a target, in bytes.
	maxReason = 1000
	// MaxActions is the maximum number of stored actions of any age.
	MaxActions = 200_000
	// deleteBatch is the maximum number of actions that one statement deletes.
	deleteBatch = 10_000
)

// Action is an action that a user requested.
type Action struct {
	ID             int64     `db:"id"`
	At             time.Time `db:"at"`
	Name           string    `db:"name"`
	Subject        string    `db:"subject"`
	Role           string    `db:"role"`
	Authentication string    `db:"authentication"`
	Action         string    `db:"action"`
	Target         string    `db:"target"`
	Detail         string    `db:"detail"`
	Outcome        Outcome   `db:"outcome"`
	Reason         string    `db:"reason"`
}

// ActionFilter selects actions; empty fields select all.
type ActionFilter struct {
	Name, Action, Target string
	Outcome              Outcome
	// Limit and Offset cut a page out of the newest-first list.
	Limit, Offset int
}

// Actions stores the actions of operators.
type Actions struct{ write, read *sqlx.DB }

// NewActions returns the Actions of a migrated database.
func NewActions(write, read *sqlx.DB) *Actions { return &Actions{write: write, read: read} }

// Begin stores an action before it is executed, and sets its id.
func (s *Actions) Begin(ctx context.Context, a *Action) error {
	err := s.write.GetContext(ctx, &a.ID, `
INSERT INTO orchestrator.actions (at, name, subject, role, authentication, action, target, detail, outcome, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id`,
		a.At, short(a.Name), short(a.Subject), a.Role, a.Authentication, a.Action, short(a.Target), short(a.Detail), string(a.Outcome), short(a.Reason))
	if err != nil {
		return fmt.Errorf("write action: %w", err)
	}
	return nil
}

// End stores the outcome of an action.
func (s *Actions) End(ctx context.Context, a *Action) error {
	result, err := s.write.ExecContext(ctx, `
UPDATE orchestrator.actions SET name = $2, target = $3, detail = $4, outcome = $5, reason = $6 WHERE id = $1 AND outcome = 'begun'`,
		a.ID, short(a.Name), short(a.Target), short(a.Detail), string(a.Outcome), short(a.Reason))
	if err != nil {
		return fmt.Errorf("write outcome of action: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(fmt.Errorf("write outcome of action %d: it has not begun", a.ID), err)
	}
	return nil
}

// List returns a page of actions, newest first, and the total number.
func (s *Actions) List(ctx context.Context, f ActionFilter) (page []Action, total int, err error) {
	var conditions []string
	var args []any
	for _, c := range []struct{ column, value string }{
		{"name", f.Name}, {"action", f.Action}, {"target", f.Target}, {"outcome", string(f.Outcome)},
	} {
		if c.value != "" {
			args = append(args, clean(c.value))
			conditions = append(conditions, fmt.Sprintf("%s = $%d", c.column, len(args)))
		}
	}
	where := ""
	if len(conditions) > 0 {
		where = " WHERE " + strings.Join(conditions, " AND ")
	}
	if err := s.read.GetContext(ctx, &total, `SELECT count(*) FROM orchestrator.actions`+where, args...); err != nil {
		return nil, 0, fmt.Errorf("count actions: %w", err)
	}
	err = s.read.SelectContext(ctx, &page, fmt.Sprintf(`
SELECT id, at, name, subject, role, authentication, action, target, detail, outcome, reason
FROM orchestrator.actions%s ORDER BY id DESC LIMIT $%d OFFSET $%d`, where, len(args)+1, len(args)+2), append(args, f.Limit, f.Offset)...)
	if err != nil {
		return nil, 0, fmt.Errorf("list actions: %w", err)
	}
	for i := range page {
		page[i].At = page[i].At.UTC()
	}
	return page, total, nil
}

// refusedPart is the divisor for the maximum number of refused actions.
const refusedPart = 10

// Forget deletes actions before a time, and the oldest actions if there are more than keep. It keeps at most keep / refusedPart refused
// actions, so that users without permissions cannot displace the actions of others. It returns the number of deleted actions. It relies on
// actions_at and the primary key.
func (s *Actions) Forget(ctx context.Context, before time.Time, keep int) (removed int64, err error) {
	for _, old := range []struct {
		ids  string
		args []any
	}{
		{`SELECT id FROM orchestrator.actions WHERE at < $1 ORDER BY at`, []any{before}},
		{`SELECT id FROM orchestrator.actions WHERE outcome = 'refused' ORDER BY id DESC OFFSET $1`, []any{keep / refusedPart}},
		{`SELECT id FROM orchestrator.actions ORDER BY id DESC OFFSET $1`, []any{keep}},
	} {
		for {
			result, err := s.write.ExecContext(ctx,
				fmt.Sprintf(`DELETE FROM orchestrator.actions WHERE id IN (%s LIMIT %d)`, old.ids, deleteBatch), old.args...)
			if err != nil {
				return removed, fmt.Errorf("forget actions: %w", err)
			}
			n, err := result.RowsAffected()
			if err != nil {
				return removed, fmt.Errorf("forget actions: %w", err)
			}
			if removed += n; n < deleteBatch {
				break
			}
		}
	}
	return removed, nil
}

func short(s string) string {
	s = clean(s)
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "")
	}
	return s
}
