package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/batch"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// RunBatch implements batch.Actor. The actions and their results are one transaction, so a batch that continues after a kill never acts twice
// on an operation. If an operation spoils the transaction, each of them gets its own.
func (d *Dispatcher) RunBatch(ctx context.Context, b *batch.Batch, members []batch.Member, due time.Time) error {
	err := d.runMembers(ctx, b, members, due)
	if err == nil || isTransient(ctx, err) || errors.Is(err, batch.ErrChanged) {
		return err
	}
	for i := range members {
		one := members[i : i+1]
		err := d.runMembers(ctx, b, one, due)
		if err != nil && !isTransient(ctx, err) && !errors.Is(err, batch.ErrChanged) {
			d.log.Error("action of a batch failed", "batch_id", b.ID, "operation_id", one[0].OperationID, "err", err)
			one[0].State, one[0].Error = batch.Failed, "the action failed; the log contains the reason"
			err = d.deps.Store.InTx(ctx, func(tx Tx) error { return tx.RecordBatch(ctx, b.ID, one, due, d.deps.Now()) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// runMembers applies the action to operations in one transaction, and carries out its effects.
func (d *Dispatcher) runMembers(ctx context.Context, b *batch.Batch, members []batch.Member, due time.Time) error {
	ids := make([]string, len(members))
	for i := range members {
		ids[i] = members[i].OperationID
	}
	var decisions []decision
	err := d.runToCompletion(ctx, func(ctx context.Context) (err error) {
		decisions, err = d.decideAll(ctx, ids, b.Event(), func(tx Tx, results map[string]error) error {
			recorded := make([]batch.Member, 0, len(members))
			for _, m := range members {
				if err, ok := results[m.OperationID]; ok {
					recorded = append(recorded, withResult(m, err))
				}
			}
			return tx.RecordBatch(ctx, b.ID, recorded, due, d.deps.Now())
		})
		return err
	})
	if err == nil && len(decisions) > 0 {
		d.carryOutAll(ctx, decisions)
	}
	return err
}

func withResult(m batch.Member, err error) batch.Member {
	switch {
	case err == nil:
		m.State = batch.Done
	case errors.Is(err, errUnreadable): // may wrap the next one, for the definition
		m.State, m.Error = batch.Failed, err.Error()
	case errors.Is(err, store.ErrNotFound):
		m.State, m.Error = batch.Skipped, "the operation is archived or was deleted"
	case errors.Is(err, engine.ErrNotPossible):
		m.State, m.Error = batch.Skipped, err.Error()
	default:
		m.State, m.Error = batch.Failed, err.Error()
	}
	return m
}
