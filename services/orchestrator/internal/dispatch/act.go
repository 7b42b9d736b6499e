package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Act carries out what an operator asks for: engine.Cancel, engine.Retry or engine.SkipStep. The error wraps
// store.ErrNotFound when there is no such operation, and engine.ErrNotPossible when its state does not allow it.
func (d *Dispatcher) Act(ctx context.Context, operationID string, e engine.Event) error {
	var err error
	for range maxRounds {
		err = d.whole(ctx, func(ctx context.Context) error { return d.act(ctx, operationID, e) })
		if !postgres.IsRetryable(err) && !errors.Is(err, store.ErrConflict) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("operation %s: %w", operationID, err)
	}
	return nil
}

// newest refuses the retry of an operation that others have followed: it would undo what they did, or bring back what they have
// removed.
func (d *Dispatcher) newest(ctx context.Context, tx *sqlx.Tx, row *store.Row) error {
	newer, err := d.deps.Store.NewerTx(ctx, tx, row.Operation.ID, row.Operation.InstanceID)
	if err != nil {
		return err
	}
	if newer != "" {
		return fmt.Errorf("%w: the instance has the newer operation %s, which counts", engine.ErrNotPossible, newer)
	}
	return nil
}

func (d *Dispatcher) act(ctx context.Context, operationID string, e engine.Event) error {
	if _, err := uuid.Parse(operationID); err != nil {
		return store.ErrNotFound
	}
	found, err := d.deps.Store.Load(ctx, []string{operationID})
	if err != nil {
		return err
	}
	row, ok := found[operationID]
	if !ok {
		return store.ErrNotFound
	}
	var w *work
	var before event.OperationState
	err = d.deps.Store.InTx(ctx, func(tx *sqlx.Tx) error {
		instances, err := d.deps.Store.LockInstancesTx(ctx, tx, []string{row.Operation.InstanceID})
		if err != nil {
			return err
		}
		instance := instances[row.Operation.InstanceID]
		if row, err = d.deps.Store.LockTx(ctx, tx, operationID); err != nil {
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
		if _, err := d.deps.Store.WriteTx(ctx, tx, changesOf([]*work{w})); err != nil {
			return err
		}
		if retry {
			if err := d.deps.Store.ReopenMemberTx(ctx, tx, operationID, d.deps.Now()); err != nil {
				return err
			}
		}
		return d.deps.Store.SaveInstancesTx(ctx, tx, []*store.Instance{instance})
	})
	if err != nil {
		d.cache.drop(operationID)
		return err
	}
	d.remember([]*work{w})
	if err := d.afterAlone(ctx, []*work{w}, nil); err != nil {
		return err
	}
	if w.row.Status == event.Pending || w.row.Status.Final() {
		if err := d.AdmitInstances(ctx, []string{w.row.Operation.InstanceID}); err != nil {
			// The action is done; the sweep finds those who wait.
			d.log.Warn("pending operations not started", "err", err)
		}
	}
	if before == event.InProgress && d.madeRoom(w) {
		if err := d.Admit(ctx); err != nil {
			d.log.Warn("pending operations not admitted", "err", err)
		}
	}
	return nil
}

// madeRoom tells whether the end of an operation lets another one of its type begin.
func (d *Dispatcher) madeRoom(w *work) bool {
	_, limited := d.cfg.Admission[w.row.Operation.Type]
	return limited && w.row.Status.Final()
}
