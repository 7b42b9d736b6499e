package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/event"
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

const (
	// beforeAll stands before every id.
	beforeAll = "00000000-0000-0000-0000-000000000000"
	// longestExecution is how long a step may take at most for its command to be found by Lost; a longer one is sent again when its
	// own limit is over.
	longestExecution = 24 * time.Hour
)

// Lost sends the commands of all operations in flight again that were sent before a time, at which the bus has lost what it carried, and
// returns how many there were. What left names is not sent: a worker still has it. Several orchestrators may do it at once, or again:
// what was sent after that time is not sent once more.
func (d *Dispatcher) Lost(ctx context.Context, before time.Time, left func(worker, commandID string) bool) (int, error) {
	until := before.Add(longestExecution)
	// Nearly always there is nothing, when an orchestrator has just started.
	if found, err := d.deps.Store.AnyInFlight(ctx, until); err != nil || !found {
		return 0, err
	}
	total, behind := 0, beforeAll
	for {
		last, sent := "", 0
		_, err := d.wakeBatch(ctx, func(ctx context.Context, tx *sqlx.Tx, _ time.Time, limit int) ([]string, error) {
			ids, err := d.deps.Store.InFlightTx(ctx, tx, until, behind, limit)
			last, sent = "", 0
			if len(ids) > 0 {
				last = ids[len(ids)-1]
			}
			return ids, err
		}, func(w *work, now time.Time) error {
			worker, command := engine.Command(w.process, &w.row.State)
			if left(worker, event.CommandID(w.row.Operation.ID, command.Cursor)) {
				return engine.ErrNotPossible
			}
			err := w.wakeWith(engine.Due{WorkerAlive: d.deps.Workers.Serves(worker, command.Step), LostBefore: before}, now)
			if err == nil && w.effects.Dispatch {
				sent++
			}
			return err
		})
		total += sent
		if err != nil {
			return total, fmt.Errorf("send lost commands again: %w", err)
		}
		if last == "" {
			return total, nil
		}
		behind = last
	}
}

type finder func(ctx context.Context, tx *sqlx.Tx, now time.Time, limit int) ([]string, error)

func (d *Dispatcher) drain(ctx context.Context, what string, find finder) (int, error) {
	total := 0
	for {
		n, err := d.wakeBatch(ctx, find, d.wake)
		total += n
		if err != nil {
			return total, fmt.Errorf("%s: %w", what, err)
		}
		if n < dueBatch {
			return total, nil
		}
	}
}

// waker tells the engine about an operation.
type waker func(w *work, now time.Time) error

// wakeBatch tells the engine about operations whose time has come, in one transaction that holds their rows.
func (d *Dispatcher) wakeBatch(ctx context.Context, find finder, wake waker) (found int, err error) {
	err = d.limited(ctx, func(ctx context.Context) (err error) {
		found, err = d.wakeAll(ctx, find, wake)
		return err
	})
	return found, err
}

func (d *Dispatcher) wakeAll(ctx context.Context, find finder, wake waker) (found int, err error) {
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
			if err := wake(w, now); err != nil {
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

func (d *Dispatcher) wake(w *work, now time.Time) error {
	alive := true
	if w.row.InFlight() {
		worker, command := engine.Command(w.process, &w.row.State)
		alive = d.deps.Workers.Serves(worker, command.Step)
	}
	return w.wakeWith(engine.Due{WorkerAlive: alive}, now)
}

// wakeWith applies the event, and releases the instance if that has ended the operation.
func (w *work) wakeWith(e engine.Due, now time.Time) error {
	if err := w.apply(e, now); err != nil {
		return err
	}
	if w.change != nil && w.effects.Finished {
		w.release()
	}
	return nil
}
