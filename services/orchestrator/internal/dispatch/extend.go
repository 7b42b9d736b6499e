package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// Extend gives a worker more time for a command that it executes, counted from now, and returns the new limit. It returns when the limit is
// committed. The error wraps store.ErrNotFound if the operation does not exist, and engine.ErrNotPossible if it does not await the result of
// that command from that worker, or if the budget of the step is spent.
func (d *Dispatcher) Extend(ctx context.Context, worker string, c event.CommandRef, by time.Duration) (time.Time, error) {
	row, p, err := d.load(ctx, c.OperationID)
	if err != nil {
		return time.Time{}, err
	}
	// No other worker gets a command with this cursor.
	if !row.InFlight() || row.AwaitedCursor() != c.Cursor || engine.Next(p, &row.State).Worker != worker {
		return time.Time{}, fmt.Errorf("%w: the operation does not await the result of the command", engine.ErrNotPossible)
	}
	one, err := d.decide(ctx, c.OperationID, engine.Extend{Cursor: c.Cursor, For: by})
	if err != nil {
		return time.Time{}, err
	}
	return one.w.row.ExecuteBefore, nil
}
