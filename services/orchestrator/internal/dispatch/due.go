package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// dueBatch is how many due operations one transaction takes up at most.
const dueBatch = 500

// Due takes up waiting operations whose time has come, until there are none, and returns how many there were.
func (d *Dispatcher) Due(ctx context.Context) (int, error) {
	return d.drain(ctx, "take up due operations", d.deps.Store.DueTx)
}

// Unanswered sends commands again that nobody has answered in time, until there are none, and returns how many there were.
func (d *Dispatcher) Unanswered(ctx context.Context) (int, error) {
	return d.drain(ctx, "take up unanswered commands", d.deps.Store.UnansweredTx)
}

type finder func(ctx context.Context, tx *sqlx.Tx, now time.Time, limit int) ([]string, error)

func (d *Dispatcher) drain(ctx context.Context, what string, find finder) (int, error) {
	total := 0
	for {
		n, err := d.wakeBatch(ctx, find)
		total += n
		if err != nil {
			return total, fmt.Errorf("%s: %w", what, err)
		}
		if n < dueBatch {
			return total, nil
		}
	}
}

// wakeBatch tells the engine about operations whose time has come, in one transaction that holds their rows.
func (d *Dispatcher) wakeBatch(ctx context.Context, find finder) (found int, err error) {
	err = d.limited(ctx, func(ctx context.Context) (err error) {
		found, err = d.wakeAll(ctx, find)
		return err
	})
	return found, err
}

func (d *Dispatcher) wakeAll(ctx context.Context, find finder) (found int, err error) {
	now := d.deps.Now()
	var works []*work
	var waiting map[string]int
	err = d.deps.Store.InTx(ctx, func(tx *sqlx.Tx) error {
		works = nil
		ids, err := find(ctx, tx, now, dueBatch)
		if err != nil {
			return err
		}
		if found = len(ids); found == 0 {
			return errNothingToDo
		}
		rows, err := d.deps.Store.LoadTx(ctx, tx, ids)
		if err != nil {
			return err
		}
		for _, id := range ids {
			w, err := d.newWork(ctx, rows[id], true)
			if err != nil {
				if passing(ctx, err) {
					return err
				}
				d.leaveOut(rows[id], err)
				found-- // it is found again, and must not keep the sweep going
				continue
			}
			if err := w.wake(d.deps.Workers, now); err != nil {
				if errors.Is(err, engine.ErrNotPossible) {
					continue
				}
				return err
			}
			works = append(works, w)
		}
		changes := changesOf(works)
		if waiting, err = d.deps.Store.WriteTx(ctx, tx, changes); err != nil {
			return err
		}
		if len(waiting) != len(changes) {
			return store.ErrConflict
		}
		return nil
	})
	if errors.Is(err, errNothingToDo) {
		return 0, nil
	}
	if err != nil {
		d.forget(works)
		return 0, err
	}
	d.remember(works)
	return found, d.after(ctx, works, waiting)
}

// leaveOut tells of an operation that cannot go on, for example because its definition cannot be read. The others must not wait
// for it.
func (d *Dispatcher) leaveOut(row *store.Row, cause error) {
	d.log.Error("operation cannot go on", "operation_id", row.Operation.ID, "instance_id", row.Operation.InstanceID, "err", cause)
}

func (w *work) wake(workers Workers, now time.Time) error {
	alive := true
	if w.row.InFlight() {
		worker, command := engine.Command(w.process, &w.row.State)
		alive = workers.Serves(worker, command.Step)
	}
	if err := w.apply(engine.Due{WorkerAlive: alive}, now); err != nil {
		return err
	}
	if w.change != nil && w.effects.Finished {
		w.release()
	}
	return nil
}
