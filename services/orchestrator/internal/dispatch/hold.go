package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Holds knows the holds. The check is where a command is decided, before its commit, and again before it is published.
type Holds interface {
	// Match returns the id of a hold whose scope contains the next command of an operation; empty if there is none. The step is nil for an
	// operation that has not started.
	Match(op *event.Operation, next *process.Step) string
	// Active returns the ids of all holds.
	Active() []string
}

// noHolds is used without Deps.Holds.
type noHolds struct{}

func (noHolds) Match(*event.Operation, *process.Step) string { return "" }
func (noHolds) Active() []string                             { return nil }

// heldBy returns the id of a hold whose scope contains the start or the decided command of the operation; empty if there is none.
func heldBy(holds Holds, w *work) string {
	if w.row.Status != event.InProgress {
		return holds.Match(&w.row.Operation, nil)
	}
	return holds.Match(&w.row.Operation, engine.Next(w.process, &w.row.State))
}

// holdStart holds a pending operation that must not start, and reports whether it did.
func (d *Dispatcher) holdStart(w *work) (held bool, err error) {
	id := heldBy(d.deps.Holds, w)
	if id == "" {
		return false, nil
	}
	return true, w.apply(engine.Hold{ID: id}, d.deps.Now())
}

// holdUnpublished commits the hold of an operation whose command is committed and was never published, unless it has moved on.
func (d *Dispatcher) holdUnpublished(ctx context.Context, w *work, id string) error {
	_, err := d.decide(ctx, w.row.Operation.ID, engine.Hold{ID: id, Cursor: w.row.Cursor, Dispatch: w.row.Dispatch})
	if errors.Is(err, engine.ErrNotPossible) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// releaseEvery is the interval at which ReleaseHeld reads the held operations while the holds do not change.
const releaseEvery = time.Second

// releases is the last call of ReleaseHeld that found no operation, and the ids of the holds at that time.
type releases struct {
	at     time.Time
	active []string
}

// ReleaseHeld releases the operations whose hold has gone: it sends their commands, unless another hold contains them. Pending operations
// can start with the next admission. Every held operation must be read, so it does nothing if it found none in the last second and no hold has
// gone since. It is not called concurrently.
func (d *Dispatcher) ReleaseHeld(ctx context.Context) error {
	now, active, last := d.deps.Now(), d.deps.Holds.Active(), &d.releases
	if passed := now.Sub(last.at); passed >= 0 && passed < releaseEvery && slices.Equal(active, last.active) {
		return nil
	}
	n, err := d.wakeBatches(ctx, "release held operations", func(ctx context.Context, tx Tx, _ time.Time, limit int) ([]string, error) {
		return tx.Releasable(ctx, d.deps.Holds.Active(), limit)
	}, func(w *work, now time.Time) error {
		if id := heldBy(d.deps.Holds, w); id != "" {
			return w.apply(engine.Hold{ID: id}, now)
		}
		return w.apply(engine.Release{}, now)
	})
	if err == nil && n == 0 {
		*last = releases{at: now, active: active}
	}
	return err
}
