package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

const (
	limitsSQL      = `SELECT version, document, applied_by, applied_at FROM orchestrator.limits`
	applyLimitsSQL = `
INSERT INTO orchestrator.limits (version, document, applied_by, applied_at, operation_scopes) VALUES (1, $1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET version = limits.version + 1, document = excluded.document, applied_by = excluded.applied_by,
    applied_at = excluded.applied_at, operation_scopes = excluded.operation_scopes
RETURNING version`
	// boundedSQL selects the operations o in the scope of a limit on operations in progress.
	boundedSQL = `EXISTS (SELECT FROM orchestrator.limits l, jsonb_array_elements(l.operation_scopes) AS s
WHERE l.id AND COALESCE(s -> 'type' ? o.type, true) AND COALESCE(s -> 'plan' ? o.plan, true) AND COALESCE(s -> 'region' ? o.region, true)
    AND COALESCE(s -> 'globalAccount' ? o.global_account, true))`
	lockAllSQL    = `SELECT id::text FROM orchestrator.operations WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE SKIP LOCKED`
	lockLimitsSQL = `SELECT pg_advisory_xact_lock($1)`
	// waitedForSQL reads one entry of operations_limited for each queue.
	waitedForSQL = `
WITH RECURSIVE q AS (
    (SELECT queue FROM orchestrator.operations WHERE queue IS NOT NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT o.queue FROM orchestrator.operations o WHERE o.queue > q.queue ORDER BY o.queue LIMIT 1) FROM q WHERE q.queue IS NOT NULL
)
SELECT queue FROM q WHERE queue IS NOT NULL`
	// queuedSQL relies on operations_limited.
	queuedSQL = `SELECT EXISTS (SELECT 1 FROM orchestrator.operations WHERE queue = $1 AND starts_with(type, 'upgrade') <= $2)`
	// inUseSQL relies on operations_granted, which is as large as the limits.
	inUseSQL = `
SELECT key, count(*) FROM orchestrator.operations o, unnest(o.granted) AS key WHERE o.granted IS NOT NULL GROUP BY key`
	// waitingSQL counts the entries of operations_limited.
	waitingSQL = `SELECT queue, count(*) FROM orchestrator.operations WHERE queue IS NOT NULL GROUP BY queue`
	// arrivedSQL and headSQL rely on operations_limited. The ORDER BY makes the planner use it also if its statistics are old.
	arrivedSQL = `
SELECT o.id::text, o.global_account,
    CASE WHEN o.turns IS NOT NULL THEN ARRAY(SELECT jsonb_object_keys(o.turns)) END
FROM orchestrator.operations o WHERE o.queue = $1 AND starts_with(o.type, 'upgrade') = $2 AND o.turn IS NULL
ORDER BY o.queue, starts_with(o.type, 'upgrade'), o.turn, o.id LIMIT $3 FOR UPDATE SKIP LOCKED`
	headSQL = `
SELECT o.id::text, o.turn, CASE WHEN o.turns IS NOT NULL THEN ARRAY(SELECT jsonb_object_keys(o.turns)) END FROM orchestrator.operations o
WHERE o.queue = $1 AND starts_with(o.type, 'upgrade') = $2 AND (o.turn, o.id) > ($3, $4::uuid)
ORDER BY o.queue, starts_with(o.type, 'upgrade'), o.turn, o.id LIMIT $5 FOR UPDATE SKIP LOCKED`
	setPlacesSQL = `
UPDATE orchestrator.operations o SET turn = v.turn FROM unnest($1::uuid[], $2::float8[]) AS v(id, turn) WHERE o.id = v.id`
	// moveSQL keeps the place in the queue that a command leaves, and takes the one that it had in its new queue before.
	moveSQL = `
UPDATE orchestrator.operations SET turns = COALESCE(turns, '{}') || jsonb_build_object($2::text, $3::float8), turn = (turns ->> queue)::float8
WHERE id = $1::uuid`
	turnsSQL = `
SELECT global_account, turn FROM orchestrator.limit_turns WHERE queue = $1 AND upgrade = $2 AND global_account = ANY($3::text[])
UNION ALL SELECT NULL, COALESCE(max(turn), 0) FROM orchestrator.limit_turns WHERE queue = $1 AND upgrade = $2`
	setTurnsSQL = `
INSERT INTO orchestrator.limit_turns (queue, upgrade, global_account, turn)
SELECT $1, $2, v.global_account, v.turn FROM unnest($3::text[], $4::float8[]) AS v(global_account, turn)
ON CONFLICT (queue, upgrade, global_account) DO UPDATE SET turn = excluded.turn`
	// dropTurnsSQL deletes the turns that no longer delay an account.
	dropTurnsSQL = `
DELETE FROM orchestrator.limit_turns t WHERE t.turn <= COALESCE(
    (SELECT min(o.turn) FROM orchestrator.operations o WHERE o.queue = t.queue AND starts_with(o.type, 'upgrade') = t.upgrade), 'infinity')`
	ratesSQL    = `SELECT key, next_at FROM orchestrator.limit_rates WHERE next_at > $1`
	setRatesSQL = `
INSERT INTO orchestrator.limit_rates (key, next_at) SELECT v.key, v.next_at FROM unnest($1::text[], $2::timestamptz[]) AS v(key, next_at)
ON CONFLICT (key) DO UPDATE SET next_at = excluded.next_at`
	dropRatesSQL = `DELETE FROM orchestrator.limit_rates WHERE next_at <= $1`
	// boundsSQL relies on operations_unfinished, operations_pkey and requests_pkey.
	boundsSQL = `
SELECT o.id::text, o.type, o.stage, o.step, COALESCE(o.queue, ''), o.granted, r.definition, COALESCE(r.body #>> '{context,globalAccountId}', ''),
    COALESCE(r.body #>> '{plan,id}', ''), COALESCE(r.body #>> '{plan,name}', ''), COALESCE(r.body #>> '{runtime,region}', '')
FROM orchestrator.operations o JOIN orchestrator.requests r ON r.operation_id = o.id
WHERE o.state = 'in progress' AND (o.queue IS NOT NULL OR o.execute_before IS NOT NULL) AND o.id > $1::uuid ORDER BY o.id LIMIT $2`
	// positionSQL relies on operations_limited. A command without a place has just arrived.
	positionSQL = `
SELECT m.id::text, 1 + (SELECT count(*) FROM orchestrator.operations o WHERE o.queue = m.queue AND (
        starts_with(o.type, 'upgrade') < starts_with(m.type, 'upgrade')
        OR starts_with(o.type, 'upgrade') = starts_with(m.type, 'upgrade') AND (m.turn IS NULL AND o.turn IS NOT NULL OR (o.turn, o.id) < (m.turn, m.id))))
FROM orchestrator.operations m WHERE m.id = ANY($1::uuid[]) AND m.queue IS NOT NULL`
)

// limitsLock is the advisory lock under which commands are granted.
const limitsLock = 0x6b65620002

// Limits returns the document with the limits; the zero value if none was applied yet. It uses the pool for transitions, because queries must
// not delay it.
func (s *Store) Limits(ctx context.Context) (d limit.Document, err error) {
	err = s.commit.QueryRowContext(ctx, limitsSQL).Scan(&d.Version, &d.Text, &d.AppliedBy, &d.AppliedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return limit.Document{}, nil
	}
	d.AppliedAt = d.AppliedAt.UTC()
	return d, err
}

// ApplyLimits replaces the document with the limits, which must be valid, and returns its version.
func (s *Store) ApplyLimits(ctx context.Context, document, by string, at time.Time) (version int64, err error) {
	set, err := limit.Parse([]byte(document))
	if err != nil {
		return 0, fmt.Errorf("write limits: %w", err)
	}
	scopes := []limit.Scope{}
	for i := range set.Limits {
		if l := &set.Limits[i]; l.Operations > 0 {
			scopes = append(scopes, l.Scope)
		}
	}
	text, err := json.Marshal(scopes)
	if err == nil {
		err = s.commit.QueryRowContext(ctx, applyLimitsSQL, document, by, at, string(text)).Scan(&version)
	}
	if err != nil {
		return 0, fmt.Errorf("write limits: %w", err)
	}
	return version, nil
}

// LockLimits waits until no other transaction grants commands. The lock ends with the transaction.
func (t *Tx) LockLimits(ctx context.Context) error {
	if _, err := t.tx.ExecContext(ctx, lockLimitsSQL, int64(limitsLock)); err != nil {
		return fmt.Errorf("lock the limits: %w", err)
	}
	return nil
}

// LockAll locks operations and returns their ids. It skips operations that another transaction has locked.
func (t *Tx) LockAll(ctx context.Context, operations []string) ([]string, error) {
	var list array
	for _, id := range operations {
		list.raw(id)
	}
	return ids(ctx, t.tx, lockAllSQL, &list)
}

// WaitedFor returns the limits that commands wait for.
func (t *Tx) WaitedFor(ctx context.Context) (queues []string, err error) {
	if err := t.tx.SelectContext(ctx, &queues, waitedForSQL); err != nil {
		return nil, fmt.Errorf("find queues: %w", err)
	}
	return queues, nil
}

// Queued reports whether commands wait for a limit before a new one. Those of upgrades wait only before another upgrade.
func (t *Tx) Queued(ctx context.Context, queue string, upgrade bool) (queued bool, err error) {
	if err := t.tx.GetContext(ctx, &queued, queuedSQL, queue, upgrade); err != nil {
		return false, fmt.Errorf("find queues: %w", err)
	}
	return queued, nil
}

// InUse returns the number of commands in flight that count in each limit.
func (t *Tx) InUse(ctx context.Context) (map[string]int, error) { return counts(ctx, t.tx, inUseSQL) }

// CommandUse returns the number of commands in flight that count in each limit, and the number of commands that wait for it.
func (s *Store) CommandUse(ctx context.Context) (inUse, waiting map[string]int, err error) {
	if inUse, err = counts(ctx, s.read, inUseSQL); err != nil {
		return nil, nil, err
	}
	waiting, err = counts(ctx, s.read, waitingSQL)
	return inUse, waiting, err
}

func counts(ctx context.Context, q sqlx.QueryerContext, query string) (map[string]int, error) {
	return pairs[string, int](ctx, q, "count commands in limits", query)
}

// Waiter is an operation whose command waits for a limit.
type Waiter struct {
	ID            string
	GlobalAccount string
	// Turn orders the waiters of a queue.
	Turn float64
	// Before are the other queues in which it has waited.
	Before []string
}

// Arrived locks waiters that have no turn yet, and returns them in order of arrival. It skips operations that another transaction has locked.
func (t *Tx) Arrived(ctx context.Context, queue string, upgrade bool, limit int) ([]Waiter, error) {
	return t.waiters(ctx, func(w *Waiter) []any { return []any{&w.ID, &w.GlobalAccount, (*textList)(&w.Before)} }, arrivedSQL, queue, upgrade, limit)
}

// Head locks waiters after one with a turn, and returns them in the order of their turns. It skips operations that another transaction has
// locked.
func (t *Tx) Head(ctx context.Context, queue string, upgrade bool, after Waiter, limit int) ([]Waiter, error) {
	return t.waiters(ctx, func(w *Waiter) []any { return []any{&w.ID, &w.Turn, (*textList)(&w.Before)} }, headSQL, queue, upgrade, after.Turn, after.ID, limit)
}

func (t *Tx) waiters(ctx context.Context, columns func(w *Waiter) []any, query string, args ...any) (found []Waiter, err error) {
	return collect(ctx, t.tx, "find commands that wait for a limit", query, args, func(rows *sql.Rows, w *Waiter) error {
		return rows.Scan(columns(w)...)
	})
}

// SetPlaces writes the turns of waiters.
func (t *Tx) SetPlaces(ctx context.Context, waiters []Waiter) error {
	var ids, turns array
	for i := range waiters {
		ids.raw(waiters[i].ID)
		turns.float(waiters[i].Turn)
	}
	return t.execLimits(ctx, setPlacesSQL, &ids, &turns)
}

// Move keeps the turn of a waiter in the queue that it has left with Write. If it has waited in its new queue before, it gets its turn back.
func (t *Tx) Move(ctx context.Context, from string, w Waiter) error {
	return t.execLimits(ctx, moveSQL, w.ID, from, w.Turn)
}

// Turns returns the next turns of global accounts in a queue, and the highest of all accounts; 0 is before the first turn.
func (t *Tx) Turns(ctx context.Context, queue string, upgrade bool, accounts []string) (next map[string]float64, highest float64, err error) {
	var list array
	for _, account := range accounts {
		list.text(account)
	}
	rows, err := t.tx.QueryContext(ctx, turnsSQL, queue, upgrade, &list)
	if err != nil {
		return nil, 0, fmt.Errorf("read turns: %w", err)
	}
	defer rows.Close()
	next = map[string]float64{}
	for rows.Next() {
		var account sql.NullString
		var turn float64
		if err := rows.Scan(&account, &turn); err != nil {
			return nil, 0, fmt.Errorf("read turns: %w", err)
		}
		if account.Valid {
			next[account.String] = turn
		} else {
			highest = turn
		}
	}
	return next, highest, rows.Err()
}

// SetTurns writes the next turns of global accounts.
func (t *Tx) SetTurns(ctx context.Context, queue string, upgrade bool, next map[string]float64) error {
	var accounts, turns array
	for account, turn := range next {
		accounts.text(account)
		turns.float(turn)
	}
	return t.execLimits(ctx, setTurnsSQL, queue, upgrade, &accounts, &turns)
}

// Rates returns when the next command of each limit with a rate may begin, if it is after a time.
func (t *Tx) Rates(ctx context.Context, now time.Time) (map[string]time.Time, error) {
	rows, err := t.tx.QueryContext(ctx, ratesSQL, now)
	if err != nil {
		return nil, fmt.Errorf("read rates: %w", err)
	}
	defer rows.Close()
	found := map[string]time.Time{}
	for rows.Next() {
		var key string
		var next time.Time
		if err := rows.Scan(&key, &next); err != nil {
			return nil, fmt.Errorf("read rates: %w", err)
		}
		found[key] = next.UTC()
	}
	return found, rows.Err()
}

// SetRates writes when the next commands may begin.
func (t *Tx) SetRates(ctx context.Context, next map[string]time.Time) error {
	var keys, times array
	for key, at := range next {
		keys.text(key)
		times.time(at)
	}
	return t.execLimits(ctx, setRatesSQL, &keys, &times)
}

// DropTurns deletes turns and rates that have no effect any more.
func (t *Tx) DropTurns(ctx context.Context, now time.Time) error {
	return errors.Join(t.execLimits(ctx, dropTurnsSQL), t.execLimits(ctx, dropRatesSQL, now))
}

func (t *Tx) execLimits(ctx context.Context, query string, args ...any) error {
	if _, err := t.tx.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("write limits: %w", err)
	}
	return nil
}

// Bounded is an operation whose command is in flight or waits for a limit.
type Bounded struct {
	// Operation has only the members that scopes of limits refer to.
	Operation   event.Operation
	Definition  string
	Stage, Step int
	Queue       string
	Granted     []string
}

// Bounded returns operations whose commands are in flight or wait for limits, in the order of their ids, starting after an id.
func (s *Store) Bounded(ctx context.Context, after string, limit int) (found []Bounded, err error) {
	return collect(ctx, s.read, "find commands in limits", boundsSQL, []any{after, limit}, func(rows *sql.Rows, b *Bounded) error {
		var granted textList
		op := &b.Operation
		err := rows.Scan(&op.ID, &op.Type, &b.Stage, &b.Step, &b.Queue, &granted, &b.Definition, &op.Context.GlobalAccountID,
			&op.Plan.ID, &op.Plan.Name, &op.Runtime.Region)
		if err != nil {
			return err
		}
		b.Granted = granted
		return nil
	})
}

// Positions returns the positions of operations in their queues, from 1, by id.
func (s *Store) Positions(ctx context.Context, operations []string) (map[string]int, error) {
	var list array
	for _, id := range operations {
		list.raw(id)
	}
	return pairs[string, int](ctx, s.read, "find positions", positionSQL, &list)
}
