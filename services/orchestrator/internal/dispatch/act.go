package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator/internal/admission"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Act carries out an action of an operator: engine.Cancel, engine.Retry or engine.SkipStep. The error wraps
// store.ErrNotFound if the operation does not exist, and engine.ErrNotPossible if its state does not allow the action. Without an error the
// action is committed; what the bus does not confirm is published by the outbox.
func (d *Dispatcher) Act(ctx context.Context, operationID string, e engine.Event) error {
	w, before, err := d.decide(ctx, operationID, e)
	if err != nil {
		return fmt.Errorf("operation %s: %w", operationID, err)
	}
	err = d.runToCompletion(context.WithoutCancel(ctx), func(ctx context.Context) error {
		free, err := d.carryOut(ctx, []*work{w}, nil)
		if err != nil {
			return err
		}
		if w.row.Status == event.Pending || w.row.Status.Final() {
			free.instances = append(free.instances, w.row.Operation.InstanceID)
		}
		free.capacity = free.capacity || before == event.InProgress && d.freesCapacity(w)
		d.admitFreed(ctx, free)
		d.forgetUsers(ctx, []*work{w})
		return nil
	})
	if err != nil { // the action is committed
		d.log.Warn("effects of an action are carried out by the next sweep", "operation_id", operationID, "err", err)
	}
	return nil
}

// PreviewRetry returns what becomes of the steps of an operation if an operator retries it. It changes nothing. The errors are those of Act.
func (d *Dispatcher) PreviewRetry(ctx context.Context, operationID string, e engine.Retry) (steps []engine.Planned, err error) {
	if _, err := uuid.Parse(operationID); err != nil {
		return nil, store.ErrNotFound
	}
	found, err := d.deps.Store.Load(ctx, []string{operationID})
	if err != nil {
		return nil, err
	}
	row, ok := found[operationID]
	if !ok {
		return nil, store.ErrNotFound
	}
	p, err := d.deps.Definitions.Pinned(ctx, row.Definition)
	if err != nil {
		return nil, err
	}
	if steps, err = engine.Preview(p, &row.State, e); err == nil {
		err = d.deps.Store.InTx(ctx, func(tx Tx) error { return d.checkNewest(ctx, tx, row) })
	}
	if err != nil {
		return nil, fmt.Errorf("operation %s: %w", operationID, err)
	}
	return steps, nil
}

// decide applies an event that was not caused by a message, and commits the result. It also returns the previous state of the operation.
func (d *Dispatcher) decide(ctx context.Context, operationID string, e engine.Event) (w *work, before event.OperationState, err error) {
	for range maxRounds {
		err = d.runToCompletion(ctx, func(ctx context.Context) (err error) {
			w, before, err = d.decideOnce(ctx, operationID, e)
			return err
		})
		if !postgres.IsRetryable(err) && !errors.Is(err, store.ErrConflict) {
			break
		}
	}
	return w, before, err
}

// failUnsendable commits the failure of an operation whose command can never be sent, unless the operation has moved on.
func (d *Dispatcher) failUnsendable(ctx context.Context, u unsendable) (*work, error) {
	row := u.work.row
	d.log.Error("command cannot be sent and fails its operation", "operation_id", row.Operation.ID, "instance_id", row.Operation.InstanceID, "err", u.reason)
	w, _, err := d.decide(ctx, row.Operation.ID, engine.Unsendable{Cursor: row.Cursor, Reason: u.reason})
	if errors.Is(err, engine.ErrNotPossible) {
		return nil, nil
	}
	return w, err
}

// checkNewest rejects the retry of an operation if the instance has a newer one: the retry would undo the work of the newer operation
// or restore what it removed.
func (d *Dispatcher) checkNewest(ctx context.Context, tx Tx, row *store.Row) error {
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
			if err := d.checkNewest(ctx, tx, row); err != nil {
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
			updateInstance(w, instance)
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
		d.outbox.add(written, begun) // the transaction may have been committed
		return nil, "", err
	}
	d.committed([]*work{w})
	return w, before, nil
}

// freesCapacity reports whether the operation has ended, and had a place in a limit.
func (d *Dispatcher) freesCapacity(w *work) bool {
	return w.row.Status.Final() && d.limited(admission.QueueOf(&w.row.Operation))
}
