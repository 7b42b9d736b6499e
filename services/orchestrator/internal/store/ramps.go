package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/ramp"
)

// MaxRamps is the maximum number of ramps. Every orchestrator keeps all of them in memory.
const MaxRamps = 200

// Errors of AddRamp.
var (
	// ErrTooManyRamps means that there are MaxRamps.
	ErrTooManyRamps = fmt.Errorf("there are %d ramps already; remove those of a worker", MaxRamps)
	// ErrOtherRamp means that a ramp of the worker has another version, or that its removal is not complete.
	ErrOtherRamp = errors.New("the worker has a ramp to another version, or a removed ramp with running commands; turn it off, or wait for them")
)

const (
	rampsSQL = `SELECT id::text, worker, version, percent, scope, reason, created_by, created_at, removed_at FROM orchestrator.ramps ORDER BY created_at, id`
	// The table is small and is locked, so that two versions cannot be added at the same time.
	lockRampsSQL = `LOCK TABLE orchestrator.ramps IN SHARE ROW EXCLUSIVE MODE`
	addRampSQL   = `
INSERT INTO orchestrator.ramps (id, worker, version, percent, scope, reason, created_by, created_at)
VALUES ($1::uuid, $2, $3, $4, $5::jsonb, $6, $7, $8)`
	countRampsSQL  = `SELECT count(*), count(*) FILTER (WHERE worker = $1 AND (version <> $2 OR removed_at IS NOT NULL)) FROM orchestrator.ramps`
	removeRampsSQL = `UPDATE orchestrator.ramps SET removed_at = $2 WHERE worker = $1 AND removed_at IS NULL`
	dropRampsSQL   = `DELETE FROM orchestrator.ramps WHERE worker = $1 AND removed_at IS NOT NULL`
)

// Ramps returns all ramps, including removed ones, oldest first. It uses the pool for transitions, because queries must not delay it.
func (s *Store) Ramps(ctx context.Context) ([]ramp.Ramp, error) {
	rows, err := s.commit.QueryContext(ctx, rampsSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	ramps := []ramp.Ramp{}
	for rows.Next() {
		var r ramp.Ramp
		var scope []byte
		var removed sql.NullTime
		if err := rows.Scan(&r.ID, &r.Worker, &r.Version, &r.Percent, &scope, &r.Reason, &r.CreatedBy, &r.CreatedAt, &removed); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(scope, &r.Scope); err != nil {
			return nil, fmt.Errorf("ramp %s: decode the scope: %w", r.ID, err)
		}
		r.CreatedAt, r.RemovedAt = r.CreatedAt.UTC(), utc(removed)
		ramps = append(ramps, r)
	}
	return ramps, rows.Err()
}

// AddRamp stores a valid ramp. The error is ErrTooManyRamps or ErrOtherRamp if it is not allowed.
func (s *Store) AddRamp(ctx context.Context, r *ramp.Ramp) error {
	scope, err := json.Marshal(&r.Scope)
	if err != nil {
		return fmt.Errorf("encode the scope: %w", err)
	}
	return s.InTx(ctx, func(tx *Tx) error {
		if _, err := tx.tx.ExecContext(ctx, lockRampsSQL); err != nil {
			return fmt.Errorf("lock ramps: %w", err)
		}
		var all, others int
		if err := tx.tx.QueryRowContext(ctx, countRampsSQL, r.Worker, r.Version).Scan(&all, &others); err != nil {
			return fmt.Errorf("count ramps: %w", err)
		}
		switch {
		case others > 0:
			return ErrOtherRamp
		case all >= MaxRamps:
			return ErrTooManyRamps
		}
		_, err := tx.tx.ExecContext(ctx, addRampSQL, r.ID, r.Worker, r.Version, r.Percent, string(scope), r.Reason, r.CreatedBy, r.CreatedAt)
		if err != nil {
			return fmt.Errorf("write ramp: %w", err)
		}
		return nil
	})
}

// RemoveRamps marks the ramps of a worker as removed. The error is ErrNotFound if there is none.
func (s *Store) RemoveRamps(ctx context.Context, worker string, now time.Time) error {
	result, err := s.commit.ExecContext(ctx, removeRampsSQL, worker, now)
	if err != nil {
		return fmt.Errorf("remove ramps: %w", err)
	}
	if n, err := result.RowsAffected(); err == nil && n == 0 {
		return ErrNotFound
	}
	return nil
}

// DropRamps deletes the removed ramps of a worker.
func (s *Store) DropRamps(ctx context.Context, worker string) error {
	if _, err := s.commit.ExecContext(ctx, dropRampsSQL, worker); err != nil {
		return fmt.Errorf("delete ramps: %w", err)
	}
	return nil
}
