package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator/internal/batch"
)

// Batches stores batches and the results of their operations.
type Batches struct {
	store       *Store
	write, read *sqlx.DB
}

// NewBatches returns the Batches of a migrated database. store selects the operations. A round of a batch needs a connection of write.
func NewBatches(store *Store, write, read *sqlx.DB) *Batches {
	return &Batches{store: store, write: write, read: read}
}

const batchColumns = ` id::text, action, stage, step, filter, reason, created_by, created_at, rate, state, total, done, failed, skipped,
    updated_at, due_at FROM orchestrator.batches`

// Select counts the operations that a filter selects, up to batch.MaxOperations + 1.
func (s *Batches) Select(ctx context.Context, f Filter) (n int, err error) {
	w, from, err := s.store.from(ctx, &f)
	if err != nil {
		return 0, err
	}
	query := "SELECT count(*) FROM (SELECT 1" + from + w.String() + w.bind(" LIMIT %s", batch.MaxOperations+1) + ") c"
	err = s.store.limited(ctx, &f, func(ctx context.Context) error { return s.read.GetContext(ctx, &n, query, w.args...) })
	if err != nil {
		return 0, fmt.Errorf("count the operations of a batch: %w", err)
	}
	return n, nil
}

// Create stores a running batch with the operations that a filter selects, oldest first, and sets its total. Create stores nothing if check
// rejects the total, and returns the error of check.
func (s *Batches) Create(ctx context.Context, b *batch.Batch, f Filter, check func(total int) error) error {
	w, from, err := s.store.from(ctx, &f)
	if err != nil {
		return err
	}
	limit, id := w.bind(" LIMIT %s", batch.MaxOperations+1), w.bind("%s::uuid", b.ID)
	members := `
INSERT INTO orchestrator.batch_members (batch_id, position, operation_id, instance_id)
SELECT ` + id + `, row_number() OVER (ORDER BY v.created_at, v.arrived), v.id, v.instance_id
FROM (SELECT o.id, o.instance_id, o.created_at, o.arrived` + from + w.String() + limit + `) v`
	order := func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, `
INSERT INTO orchestrator.batches (id, action, stage, step, filter, reason, created_by, created_at, rate, state, total, updated_at, due_at)
VALUES ($1::uuid, $2, $3, $4, $5, $6, $7, $8, $9, 'running', 0, $8, $8)`,
			b.ID, string(b.Action), b.Stage, b.Step, clean(b.Filter), clean(b.Reason), clean(b.By), b.CreatedAt, b.Rate)
		if err != nil {
			return fmt.Errorf("write batch: %w", err)
		}
		result, err := tx.ExecContext(ctx, members, w.args...)
		if err != nil {
			return fmt.Errorf("select the operations of a batch: %w", err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return fmt.Errorf("select the operations of a batch: %w", err)
		}
		if err := check(int(n)); err != nil {
			return err
		}
		b.State, b.Total, b.UpdatedAt, b.DueAt = batch.Running, int(n), b.CreatedAt, b.CreatedAt
		if _, err := tx.ExecContext(ctx, `UPDATE orchestrator.batches SET total = $2 WHERE id = $1::uuid`, b.ID, b.Total); err != nil {
			return fmt.Errorf("write batch: %w", err)
		}
		return nil
	}
	return s.store.limited(ctx, &f, func(ctx context.Context) error { return postgres.InTx(ctx, s.write, order) })
}

// Active returns the ids of running batches, oldest first. It relies on batches_running.
func (s *Batches) Active(ctx context.Context) ([]string, error) {
	var found []string
	if err := s.read.SelectContext(ctx, &found, `SELECT id::text FROM orchestrator.batches WHERE state = 'running' ORDER BY arrived`); err != nil {
		return nil, fmt.Errorf("find running batches: %w", err)
	}
	return found, nil
}

// Exclusively runs f unless another call for the same batch is running in any process, and reports whether it ran. The lock ends with the
// connection, so a killed process does not block others.
func (s *Batches) Exclusively(ctx context.Context, id string, f func(ctx context.Context) error) (bool, error) {
	return exclusively(ctx, s.write, "batch "+id, f)
}

// Get returns a batch, or ErrNotFound.
func (s *Batches) Get(ctx context.Context, id string) (*batch.Batch, error) {
	return getBatch(ctx, s.read, id, "")
}

func getBatch(ctx context.Context, q sqlx.QueryerContext, id, lock string) (*batch.Batch, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return nil, ErrNotFound
	}
	found, err := batches(ctx, q, ` WHERE id = $1::uuid`+lock, parsed.String())
	if err != nil {
		return nil, fmt.Errorf("read batch: %w", err)
	}
	if len(found) == 0 {
		return nil, ErrNotFound
	}
	return found[0], nil
}

// BatchFilter selects batches; an empty state selects all.
type BatchFilter struct {
	State batch.State
	// Limit and Offset select a page of the newest-first list.
	Limit, Offset int
}

// List returns a page of batches, newest first, and the total number.
func (s *Batches) List(ctx context.Context, f BatchFilter) (page []*batch.Batch, total int, err error) {
	where, args := "", []any(nil)
	if f.State != "" {
		where, args = " WHERE state = $1", []any{string(f.State)}
	}
	if err := s.read.GetContext(ctx, &total, `SELECT count(*) FROM orchestrator.batches`+where, args...); err != nil {
		return nil, 0, fmt.Errorf("count batches: %w", err)
	}
	where += fmt.Sprintf(" ORDER BY arrived DESC LIMIT $%d OFFSET $%d", len(args)+1, len(args)+2)
	if page, err = batches(ctx, s.read, where, append(args, f.Limit, f.Offset)...); err != nil {
		return nil, 0, fmt.Errorf("list batches: %w", err)
	}
	return page, total, nil
}

func batches(ctx context.Context, q sqlx.QueryerContext, where string, args ...any) ([]*batch.Batch, error) {
	rows, err := q.QueryContext(ctx, `SELECT`+batchColumns+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []*batch.Batch
	for rows.Next() {
		var b batch.Batch
		if err := rows.Scan(&b.ID, &b.Action, &b.Stage, &b.Step, &b.Filter, &b.Reason, &b.By, &b.CreatedAt, &b.Rate, &b.State, &b.Total,
			&b.Done, &b.Failed, &b.Skipped, &b.UpdatedAt, &b.DueAt); err != nil {
			return nil, err
		}
		b.CreatedAt, b.UpdatedAt, b.DueAt = b.CreatedAt.UTC(), b.UpdatedAt.UTC(), b.DueAt.UTC()
		found = append(found, &b)
	}
	return found, rows.Err()
}

// Next returns the next operations without a result, in order. It relies on batch_members_waiting.
func (s *Batches) Next(ctx context.Context, id string, limit int) ([]batch.Member, error) {
	found, err := batchMembers(ctx, s.write, ` WHERE batch_id = $1::uuid AND state = 'waiting' ORDER BY position LIMIT $2`, id, limit)
	if err != nil {
		return nil, fmt.Errorf("find the next operations of a batch: %w", err)
	}
	return found, nil
}

// BatchMemberFilter selects operations of a batch; an empty state selects all.
type BatchMemberFilter struct {
	State batch.ResultState
	// Limit and Offset select a page, in the order of the batch.
	Limit, Offset int
}

// Members returns a page of the operations of a batch, and their total number.
func (s *Batches) Members(ctx context.Context, id string, f BatchMemberFilter) (page []batch.Member, total int, err error) {
	where, args := " WHERE batch_id = $1::uuid", []any{id}
	if f.State != "" {
		where, args = where+" AND state = $2", append(args, string(f.State))
	}
	if err := s.read.GetContext(ctx, &total, `SELECT count(*) FROM orchestrator.batch_members`+where, args...); err != nil {
		return nil, 0, fmt.Errorf("count the operations of a batch: %w", err)
	}
	where += fmt.Sprintf(" ORDER BY position LIMIT $%d OFFSET $%d", len(args)+1, len(args)+2)
	if page, err = batchMembers(ctx, s.read, where, append(args, f.Limit, f.Offset)...); err != nil {
		return nil, 0, fmt.Errorf("list the operations of a batch: %w", err)
	}
	return page, total, nil
}

func batchMembers(ctx context.Context, q sqlx.QueryerContext, where string, args ...any) ([]batch.Member, error) {
	rows, err := q.QueryContext(ctx,
		`SELECT position, operation_id::text, instance_id, state, error, at FROM orchestrator.batch_members`+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []batch.Member
	for rows.Next() {
		var m batch.Member
		var at sql.NullTime
		if err := rows.Scan(&m.Position, &m.OperationID, &m.InstanceID, &m.State, &m.Error, &at); err != nil {
			return nil, err
		}
		m.At = utc(at)
		found = append(found, m)
	}
	return found, rows.Err()
}

// Change pauses, resumes or cancels a batch, and returns it. After Change has returned, no operation of a paused or cancelled batch gets a
// result. The error is ErrNotFound if the batch does not exist, and wraps batch.ErrNotPossible if it has ended in another state.
func (s *Batches) Change(ctx context.Context, id string, to batch.State, now time.Time) (b *batch.Batch, err error) {
	err = postgres.InTx(ctx, s.write, func(tx *sqlx.Tx) error {
		if b, err = getBatch(ctx, tx, id, " FOR UPDATE"); err != nil {
			return err
		}
		if b.State == to {
			return nil
		}
		if b.State.Final() {
			return fmt.Errorf("%w: the batch is %s", batch.ErrNotPossible, b.State)
		}
		b.State, b.UpdatedAt = to, now
		_, err := tx.ExecContext(ctx, `UPDATE orchestrator.batches SET state = $2, updated_at = $3 WHERE id = $1::uuid`, b.ID, string(to), now)
		if err != nil {
			return fmt.Errorf("write batch: %w", err)
		}
		return nil
	})
	return b, err
}

// Forget deletes ended batches that have not changed since a time, with their results, and returns their number.
func (s *Batches) Forget(ctx context.Context, before time.Time) (removed int64, err error) {
	result, err := s.write.ExecContext(ctx,
		`DELETE FROM orchestrator.batches WHERE state IN ('finished', 'cancelled') AND updated_at < $1`, before)
	if err != nil {
		return 0, fmt.Errorf("forget batches: %w", err)
	}
	return result.RowsAffected()
}

// recordBatchSQL changes nothing if the batch does not run. It relies on the primary keys.
const recordBatchSQL = `
WITH running AS (
    UPDATE orchestrator.batches b SET done = b.done + $2, failed = b.failed + $3, skipped = b.skipped + $4, updated_at = $5, due_at = $6,
        state = CASE WHEN b.done + b.failed + b.skipped + $2 + $3 + $4 >= b.total THEN 'finished' ELSE b.state END
    WHERE b.id = $1::uuid AND b.state = 'running' RETURNING b.id
)
UPDATE orchestrator.batch_members m SET state = v.state, error = v.error, at = $5
FROM running, unnest($7::int4[], $8::text[], $9::text[]) AS v(position, state, error)
WHERE m.batch_id = running.id AND m.position = v.position AND m.state = 'waiting'`

// RecordBatch stores results of a running batch in the transaction of the actions, and when the next operations are due. The error is
// batch.ErrChanged if the batch does not run or one of the operations has a result; the transaction must then be rolled back.
func (t *Tx) RecordBatch(ctx context.Context, id string, results []batch.Member, due, now time.Time) error {
	var position, state, text array
	counts := map[batch.ResultState]int{}
	for i := range results {
		m := &results[i]
		counts[m.State]++
		position.raw(strconv.Itoa(m.Position))
		state.text(string(m.State))
		text.text(short(m.Error))
	}
	result, err := t.tx.ExecContext(ctx, recordBatchSQL, id, counts[batch.Done], counts[batch.Failed], counts[batch.Skipped], now, due,
		&position, &state, &text)
	if err != nil {
		return fmt.Errorf("write results of a batch: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n != int64(len(results)) {
		return fmt.Errorf("write results of a batch: %w", batch.ErrChanged)
	}
	return nil
}
