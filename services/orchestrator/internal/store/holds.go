package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
)

// MaxHolds is the maximum number of holds. Every orchestrator keeps all of them in memory.
const MaxHolds = 1000

// ErrTooManyHolds means that there are MaxHolds.
var ErrTooManyHolds = fmt.Errorf("there are %d holds already; release some of them", MaxHolds)

const (
	holdsSQL   = `SELECT id::text, scope, orders, reason, created_by, created_at, until FROM orchestrator.holds ORDER BY created_at, id`
	addHoldSQL = `
INSERT INTO orchestrator.holds (id, scope, orders, reason, created_by, created_at, until)
SELECT $1::uuid, $2::jsonb, $3, $4, $5, $6, $7 WHERE (SELECT count(*) FROM orchestrator.holds) < $8`
	dropHoldSQL = `DELETE FROM orchestrator.holds WHERE id = $1::uuid`
	// heldBySQL relies on operations_held.
	heldBySQL = `SELECT hold_id::text, count(*) FROM orchestrator.operations WHERE hold_id IS NOT NULL GROUP BY hold_id`
	// releasableSQL relies on operations_held.
	releasableSQL = `
SELECT id::text FROM orchestrator.operations WHERE hold_id IS NOT NULL AND NOT hold_id = ANY($1::uuid[])
LIMIT $2 FOR UPDATE SKIP LOCKED`
	endedHoldsSQL = `DELETE FROM orchestrator.holds WHERE until <= $1`
)

// Values of the column orders.
const (
	ordersWait   = "wait"
	ordersReject = "reject"
)

// Holds returns all holds, oldest first. It uses the pool for transitions, because queries must not delay it.
func (s *Store) Holds(ctx context.Context) ([]hold.Hold, error) {
	rows, err := s.commit.QueryContext(ctx, holdsSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	holds := []hold.Hold{}
	for rows.Next() {
		var h hold.Hold
		var scope []byte
		var orders string
		var until sql.NullTime
		if err := rows.Scan(&h.ID, &scope, &orders, &h.Reason, &h.CreatedBy, &h.CreatedAt, &until); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(scope, &h.Scope); err != nil {
			return nil, fmt.Errorf("hold %s: decode the scope: %w", h.ID, err)
		}
		h.RejectsOrders, h.CreatedAt, h.Until = orders == ordersReject, h.CreatedAt.UTC(), utc(until)
		holds = append(holds, h)
	}
	return holds, rows.Err()
}

// AddHold stores a valid hold. The error is ErrTooManyHolds if there are MaxHolds.
func (s *Store) AddHold(ctx context.Context, h *hold.Hold) error {
	scope, err := json.Marshal(&h.Scope)
	if err != nil {
		return fmt.Errorf("encode the scope: %w", err)
	}
	orders := ordersWait
	if h.RejectsOrders {
		orders = ordersReject
	}
	until := sql.NullTime{Time: h.Until, Valid: !h.Until.IsZero()}
	result, err := s.commit.ExecContext(ctx, addHoldSQL, h.ID, string(scope), orders, h.Reason, h.CreatedBy, h.CreatedAt, until, MaxHolds)
	if err != nil {
		return fmt.Errorf("write hold: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return ErrTooManyHolds
	}
	return nil
}

// DropHold deletes a hold. The error is ErrNotFound if there is none with the id.
func (s *Store) DropHold(ctx context.Context, id string) error {
	result, err := s.commit.ExecContext(ctx, dropHoldSQL, id)
	if err != nil {
		return fmt.Errorf("delete hold: %w", err)
	}
	if n, err := result.RowsAffected(); err == nil && n == 0 {
		return ErrNotFound
	}
	return nil
}

// DropEndedHolds deletes the holds that have ended by themselves.
func (s *Store) DropEndedHolds(ctx context.Context, now time.Time) error {
	if _, err := s.commit.ExecContext(ctx, endedHoldsSQL, now); err != nil {
		return fmt.Errorf("delete ended holds: %w", err)
	}
	return nil
}

// HeldBy returns the number of operations that each hold holds, by its id.
func (s *Store) HeldBy(ctx context.Context) (map[string]int, error) {
	return pairs[string, int](ctx, s.read, "count held operations", heldBySQL)
}

// Releasable locks held operations whose hold is none of the given ones, and returns their ids. It skips operations that another
// orchestrator has locked.
func (t *Tx) Releasable(ctx context.Context, active []string, limit int) ([]string, error) {
	var list array
	for _, id := range active {
		list.raw(id)
	}
	return ids(ctx, t.tx, releasableSQL, &list, limit)
}
