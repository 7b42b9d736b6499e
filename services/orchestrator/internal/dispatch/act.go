package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Act carries out what an operator asks for: engine.Cancel, engine.Retry or engine.SkipStep. The error wraps
// store.ErrNotFound when there is no such operation, and engine.ErrNotPossible when its state does not allow it.
func (d *Dispatcher) Act(ctx context.Context, operationID string, e engine.Event) error {
	w, before, err := d.decide(ctx, operationID, e)
	if err == nil {
		err = d.whole(context.WithoutCancel(ctx), func(ctx context.Context) error {
			free, err := d.carryOut(ctx, []*work{w}, nil)
			if err != nil {
				return err
			}
			if w.row.Status == event.Pending || w.row.Status.Final() {
				free.instances = append(free.instances, w.row.Operation.InstanceID)
			}
			free.room = free.room || before == event.InProgress && d.madeRoom(w)
			d.admitFreed(ctx, free)
			d.forgetUsers(ctx, []*work{w})
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("operation %s: %w", operationID, err)
	}
	return nil
}

// decide lets the engine decide on an event that no message has caused, and commits it. It returns the state that the operation had before.
func (d *Dispatcher) decide(ctx context.Context, operationID string, e engine.Event) (w *work, before event.OperationState, err error) {
	for range maxRounds {
		err = d.whole(ctx, func(ctx context.Context) (err error) {
			w, before, err = d.decideOnce(ctx, operationID, e)
			return err
		})
		if !postgres.IsRetryable(err) && !errors.Is(err, store.ErrConflict) {
			break
		}
	}
	return w, before, err
}

// failUnsendable commits that an operation whose command can never be sent has failed, unless it has moved on.
func (d *Dispatcher) failUnsendable(ctx context.Context, u unsendable) (*work, error) {
	row := u.work.row
	d.log.Error("command cannot be sent and fails its operation", "operation_id", row.Operation.ID, "instance_id", row.Operation.InstanceID, "err", u.reason)
	w, _, err := d.decide(ctx, row.Operation.ID, engine.Unsendable{Cursor: row.Cursor, Reason: u.reason})
	if errors.Is(err, engine.ErrNotPossible) {
		return nil, nil
	}
	return w, err
}

// newest refuses the retry of an operation that others have followed: it would undo what they did, or bring back what they have
// removed.
func (d *Dispatcher) newest(ctx context.Context, tx Tx, row *store.Row) error {
	newer, err := tx.Newer(ctx, row.Operation.ID, row.Operation.InstanceID)
	if err != nil {
		return err
	}
	if newer != "" {
		return fmt.Errorf("%w: the instance has the newer operation %s, which counts", engine.ErrNotPossible, newer)
	}
	return nil
}

func (d *Dispatcher) decideOnce(ctx context.Context, operationID string, e engine.Event) (w *work, before event.OperationState, err error) {
	if _, err := uuid.Parse(operationID); err != nil {
		return nil, "", store.ErrNotFound
	}
	found, err := d.deps.Store.Load(ctx, []string{operationID})
	if err != nil {
		return nil, "", err
	}
	row, ok := found[operationID]
	if !ok {
		return nil, "", store.ErrNotFound
	}
	var written []*work
	begun := d.deps.Now()
	err = d.deps.Store.InTx(ctx, func(tx Tx) error {
		instances, err := tx.LockInstances(ctx, []string{row.Operation.InstanceID})
		if err != nil {
			return err
		}
		instance := instances[row.Operation.InstanceID]
		if row, err = tx.Lock(ctx, operationID); err != nil {
			return err
		}
		_, retry := e.(engine.Retry)
		if retry {
			if err := d.newest(ctx, tx, row); err != nil {
				return err
			}
		}
		if w, err = d.newWork(ctx, row, true); err != nil {
			return err
		}
		before = row.Status
		if err := w.apply(e, d.deps.Now()); err != nil {
			return err
		}
		after := w.row.Status
		switch {
		case before == event.Pending && after != event.Pending:
			instance.Waiting--
		case before != event.Pending && after == event.Pending:
			instance.Waiting++
		case before == event.InProgress && after.Final():
			leave(w, instance)
		}
		if _, err := tx.Write(ctx, changesOf([]*work{w})); err != nil {
			return err
		}
		written = []*work{w}
		if retry {
			if err := tx.ReopenMember(ctx, operationID, d.deps.Now()); err != nil {
				return err
			}
		}
		return tx.SaveInstances(ctx, []*store.Instance{instance})
	})
	if err != nil {
		d.cache.drop(operationID)
		d.outbox.keep(written, begun) // the answer to the commit may be lost
		return nil, "", err
	}
	d.remember([]*work{w})
	return w, before, nil
}

// madeRoom tells whether the end of an operation lets another one of its type begin.
func (d *Dispatcher) madeRoom(w *work) bool {
	_, limited := d.cfg.Admission[w.row.Operation.Type]
	return limited && w.row.Status.Final()
}
