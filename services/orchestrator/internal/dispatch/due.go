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

const (
	// dueBatch is how many due operations one transaction takes up at most.
	dueBatch = 500
	// betweenPublications is the pause before what was committed is published again.
	betweenPublications = time.Second
)

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

// Lost sends the commands of all operations in flight again that were sent before a time, at which the bus has lost what it carried, or
// only the results, and returns how many there were, and how many were not sent because nobody serves their step. What left names is not
// sent: a worker still has it. Several orchestrators may do it at once, or again: what was sent after that time is not sent once more.
func (d *Dispatcher) Lost(ctx context.Context, before time.Time, resultsOnly bool, left func(worker, commandID string) bool) (sent, unserved int, err error) {
	until := before.Add(longestExecution)
	// Nearly always there is nothing, when an orchestrator has just started.
	if found, err := d.deps.Store.AnyInFlight(ctx, until); err != nil || !found {
		return 0, 0, err
	}
	behind := beforeAll
	for {
		last, again, nobody := "", 0, 0
		batch, err := d.wakeBatch(ctx, func(ctx context.Context, tx *sqlx.Tx, _ time.Time, limit int) ([]string, error) {
			ids, err := d.deps.Store.InFlightTx(ctx, tx, until, behind, limit)
			last, again, nobody = "", 0, 0
			if len(ids) > 0 {
				last = ids[len(ids)-1]
			}
			return ids, err
		}, func(w *work, now time.Time) error {
			worker, command := engine.Command(w.process, &w.row.State)
			if left(worker, event.CommandID(w.row.Operation.ID, command.Cursor)) {
				return engine.ErrNotPossible
			}
			err := w.wakeWith(engine.Due{
				WorkerAlive: d.deps.Workers.Serves(worker, command.Step), LostBefore: before, ResultsOnly: resultsOnly,
			}, now)
			switch {
			case errors.Is(err, engine.ErrNobody):
				nobody++
			case err == nil && w.effects.Dispatch:
				again++
			}
			return err
		})
		if err != nil {
			batch, err = d.committed(ctx, batch, err)
		}
		if err == nil {
			err = d.surely(ctx, batch)
		}
		if err != nil {
			return sent, unserved, fmt.Errorf("send lost commands again: %w", err)
		}
		sent, unserved = sent+again, unserved+nobody
		if last == "" {
			return sent, unserved, nil
		}
		behind = last
	}
}

// committed is what a batch that has ended with an error has written all the same: when the answer to a commit is lost, nobody else sends
// these commands, for the next look finds them sent. The error is returned when nothing was written.
func (d *Dispatcher) committed(ctx context.Context, batch woken, cause error) (woken, error) {
	if len(batch.works) == 0 {
		return woken{}, cause
	}
	ids := make([]string, 0, len(batch.works))
	for _, w := range batch.works {
		ids = append(ids, w.row.Operation.ID)
	}
	var works []*work
	err := d.patiently(ctx, "look whether the commit was made", len(ids), func(ctx context.Context) error {
		rows, err := d.deps.Store.Load(ctx, ids)
		works = nil
		for _, w := range batch.works {
			if row := rows[w.row.Operation.ID]; w.change != nil && row != nil && row.Version == w.row.Version && row.Cursor == w.row.Cursor {
				works = append(works, w)
			}
		}
		return err
	})
	if len(works) == 0 {
		return woken{}, errors.Join(cause, err)
	}
	return woken{works: works}, nil
}

// surely carries out what follows from a batch, and tries again while the bus does not take it: the next look would find these commands
// sent. It gives up when the bus may no longer drop those that it has taken; then their limits count.
func (d *Dispatcher) surely(ctx context.Context, batch woken) error {
	return d.patiently(ctx, "publish", len(batch.works), func(ctx context.Context) error {
		return d.after(ctx, batch.works, batch.waiting)
	})
}

// patiently does something, and again while bus or database are away, as long as a stream drops what is published a second time.
func (d *Dispatcher) patiently(ctx context.Context, what string, operations int, do func(ctx context.Context) error) error {
	until := time.Now().Add(event.DuplicateWindow)
	for {
		err := d.limited(context.WithoutCancel(ctx), do) // once more also when it is to stop: see whole
		if err == nil || !passing(ctx, err) || ctx.Err() != nil || time.Now().Add(betweenPublications).After(until) {
			return err
		}
		d.log.Warn("lost commands not sent again yet, trying again", "doing", what, "operations", operations, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(betweenPublications):
		}
	}
}

type finder func(ctx context.Context, tx *sqlx.Tx, now time.Time, limit int) ([]string, error)

func (d *Dispatcher) drain(ctx context.Context, what string, find finder) (int, error) {
	total := 0
	for {
		var found int
		err := d.whole(ctx, func(ctx context.Context) error {
			batch, err := d.wakeAll(ctx, find, d.wake)
			if found = batch.found; err != nil {
				d.keepUnsent(batch.works)
				return err
			}
			return d.afterAlone(ctx, batch.works, batch.waiting)
		})
		total += found
		if err != nil {
			return total, fmt.Errorf("%s: %w", what, err)
		}
		if found < d.dueBatch {
			return total, nil
		}
	}
}

// waker tells the engine about an operation.
type waker func(w *work, now time.Time) error

// woken is a batch of operations that the engine was told about; what follows from it is not yet carried out.
type woken struct {
	found   int
	works   []*work
	waiting map[string]int
}

// wakeBatch is wakeAll within the time that a batch may take.
func (d *Dispatcher) wakeBatch(ctx context.Context, find finder, wake waker) (batch woken, err error) {
	err = d.whole(ctx, func(ctx context.Context) (err error) {
		batch, err = d.wakeAll(ctx, find, wake)
		return err
	})
	return batch, err
}

// wakeAll tells the engine about operations whose time has come, in one transaction that holds their rows. With an error the batch is what
// may have been written: what the transaction has ended with is then not known.
func (d *Dispatcher) wakeAll(ctx context.Context, find finder, wake waker) (woken, error) {
	now := d.deps.Now()
	var found int
	var works []*work
	var waiting map[string]int
	var written bool
	err := d.deps.Store.InTx(ctx, func(tx *sqlx.Tx) error {
		works = nil
		ids, err := find(ctx, tx, now, d.dueBatch)
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
		written = true
		return nil
	})
	if errors.Is(err, errNothingToDo) {
		return woken{}, nil
	}
	if err != nil {
		d.forget(works)
		if !written {
			works = nil
		}
		return woken{works: works}, err
	}
	d.remember(works)
	return woken{found: found, works: works, waiting: waiting}, nil
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
