package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// dueBatch is the maximum number of due operations in one transaction.
const dueBatch = 500

// Due wakes all operations whose time has come: first those that wait for a time, then, if unanswered is set, those whose command was not
// answered. To find the latter it reads every command in flight. It returns their number. An error in the first part does not skip the second,
// unless nothing can be published.
func (d *Dispatcher) Due(ctx context.Context, unanswered bool) (taken int, err error) {
	taken, err = d.wakeBatches(ctx, "take up due operations", func(ctx context.Context, tx Tx, now time.Time, limit int) ([]string, error) {
		return tx.Due(ctx, now, limit)
	}, d.wake)
	if publish, ok := errors.AsType[*bus.PublishError](err); ok && publish.Away() || ctx.Err() != nil || !unanswered {
		return taken, err
	}
	n, problem := d.wakeBatches(ctx, "take up unanswered commands", func(ctx context.Context, tx Tx, now time.Time, limit int) ([]string, error) {
		return tx.Unanswered(ctx, now, limit)
	}, d.wake)
	if n > 0 {
		d.log.Info("unanswered commands taken up", "commands", n)
	}
	return taken + n, errors.Join(err, problem)
}

type finder func(ctx context.Context, tx Tx, now time.Time, limit int) ([]string, error)

// wakeBatches wakes the operations that find returns, batch by batch.
func (d *Dispatcher) wakeBatches(ctx context.Context, what string, find finder, wake waker) (int, error) {
	total, limit := 0, d.dueBatch
	for {
		found, unreadable, err := d.wakeBatch(ctx, limit, find, wake)
		total += found
		if err != nil {
			return total, fmt.Errorf("%s: %w", what, err)
		}
		if found+unreadable < limit {
			return total, nil
		}
		limit = d.dueBatch + unreadable // they are found again
	}
}

// waker applies an event to an operation.
type waker func(w *work, now time.Time) error

// wakeBatch wakes one batch of at most limit operations, carries out the effects, and returns their number, and that of the operations whose
// definition cannot be read.
func (d *Dispatcher) wakeBatch(ctx context.Context, limit int, find finder, wake waker) (found, unreadable int, err error) {
	err = d.runToCompletion(ctx, func(ctx context.Context) error {
		var works []*work
		var waiting map[string]int
		begun := d.deps.Now()
		found, unreadable, works, waiting, err = d.wakeAll(ctx, limit, find, wake)
		if err != nil {
			d.outbox.add(works, begun)
			return err
		}
		return d.after(ctx, works, waiting)
	})
	return found, unreadable, err
}

// wakeAll is wakeBatch in one transaction that locks the rows, without the effects. With an error it returns the works that may have been
// committed although the commit failed.
func (d *Dispatcher) wakeAll(ctx context.Context, limit int, find finder, wake waker) (found, unreadable int, works []*work, waiting map[string]int, err error) {
	now := d.deps.Now()
	var written bool
	err = d.deps.Store.InTx(ctx, func(tx Tx) error {
		ids, err := find(ctx, tx, now, limit)
		if err != nil {
			return err
		}
		if found = len(ids); found == 0 {
			return errNothingToDo
		}
		rows, err := tx.Load(ctx, ids)
		if err != nil {
			return err
		}
		for _, id := range ids {
			w, err := d.newWork(ctx, rows[id], true)
			if err != nil {
				if isTransient(ctx, err) {
					return err
				}
				logStuck(d.log, rows[id], err)
				unreadable++
				continue
			}
			if err := wake(w, now); err != nil {
				if errors.Is(err, engine.ErrNotPossible) {
					continue
				}
				return err
			}
			w.release()
			works = append(works, w)
		}
		changes := changesOf(works)
		if waiting, err = tx.Write(ctx, changes); err != nil {
			return err
		}
		if len(waiting) != len(changes) {
			return store.ErrConflict
		}
		if err := d.noteDelivered(ctx, tx, works, now); err != nil {
			return err
		}
		written = true
		return nil
	})
	switch {
	case errors.Is(err, errNothingToDo):
		return 0, 0, nil, nil, nil
	case err == nil:
		d.committed(works)
		return found - unreadable, unreadable, works, waiting, nil
	}
	d.uncache(works)
	if !written {
		works = nil
	}
	return 0, 0, works, nil, err
}

// logStuck logs an operation that cannot continue, for example because its definition cannot be read. It must not block the others.
func logStuck(log *slog.Logger, row *store.Row, cause error) {
	log.Error("operation cannot continue", "operation_id", row.Operation.ID, "instance_id", row.Operation.InstanceID, "err", cause)
}

func (d *Dispatcher) wake(w *work, now time.Time) error {
	if !w.row.InFlight() {
		return w.apply(engine.Due{WorkerAlive: true}, now)
	}
	worker, command := engine.Command(w.process, &w.row.State)
	alive, version := d.serves(&w.row.Operation, w.row.StartedAt, worker, command.Step)
	if alive && !now.Before(w.row.ExecuteBefore) {
		d.rareLog.Do(func() {
			d.log.Warn("worker has not answered", "operation_id", w.row.Operation.ID, "instance_id", w.row.Operation.InstanceID,
				"worker", worker, "step", command.Step, "dispatch", command.Dispatch, "sent_at", w.row.SentAt)
		})
	}
	return w.apply(engine.Due{WorkerAlive: alive, Version: version}, now)
}
