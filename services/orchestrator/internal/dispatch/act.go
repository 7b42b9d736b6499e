package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Act applies an event to an operation: an action of an operator (engine.Cancel, engine.Retry or engine.SkipStep), or engine.Due. The error wraps
// store.ErrNotFound if the operation does not exist, and engine.ErrNotPossible if its state does not allow the action. Without an error the
// action is committed; what the bus does not confirm is published by the outbox.
func (d *Dispatcher) Act(ctx context.Context, operationID string, e engine.Event) error {
	one, err := d.decide(ctx, operationID, e)
	if err != nil {
		return fmt.Errorf("operation %s: %w", operationID, err)
	}
	d.carryOutAll(ctx, []decision{one})
	return nil
}

// carryOutAll carries out the effects of committed decisions. What fails is done by the next sweep.
func (d *Dispatcher) carryOutAll(ctx context.Context, decisions []decision) {
	works := worksOf(decisions)
	err := d.runToCompletion(context.WithoutCancel(ctx), func(ctx context.Context) error {
		free, err := d.carryOut(ctx, works, nil)
		if err != nil {
			return err
		}
		for _, one := range decisions {
			if one.w.row.Status == event.Pending || one.w.row.Status.Final() {
				free.instances = append(free.instances, one.w.row.Operation.InstanceID)
			}
			free.capacity = free.capacity || one.before == event.InProgress && d.freesCapacity(one.w)
		}
		d.admitFreed(ctx, free)
		d.forgetUsers(ctx, works)
		return nil
	})
	if err != nil {
		d.log.Warn("effects of actions are carried out by the next sweep", "operation_id", works[0].row.Operation.ID, "operations", len(works), "err", err)
	}
}

// PreviewRetry returns what becomes of the steps of an operation if an operator retries it. It changes nothing. The errors are those of Act.
func (d *Dispatcher) PreviewRetry(ctx context.Context, operationID string, e engine.Retry) (steps []engine.Planned, err error) {
	row, p, err := d.load(ctx, operationID)
	if err != nil {
		return nil, err
	}
	if steps, err = engine.Preview(p, &row.State, e); err == nil {
		err = d.deps.Store.InTx(ctx, func(tx Tx) error {
			newer, err := tx.Newer(ctx, []string{operationID})
			if err != nil {
				return err
			}
			return checkNewest(newer[operationID])
		})
	}
	if err != nil {
		return nil, fmt.Errorf("operation %s: %w", operationID, err)
	}
	return steps, nil
}

// load reads an operation and its definition, without locking. Without the operation the error wraps store.ErrNotFound.
func (d *Dispatcher) load(ctx context.Context, operationID string) (*store.Row, *process.Process, error) {
	if _, err := uuid.Parse(operationID); err != nil {
		return nil, nil, store.ErrNotFound
	}
	found, err := d.deps.Store.Load(ctx, []string{operationID})
	if err != nil {
		return nil, nil, err
	}
	row := found[operationID]
	if row == nil {
		return nil, nil, store.ErrNotFound
	}
	p, err := d.deps.Definitions.Pinned(ctx, row.Definition)
	return row, p, err
}

// decision is the committed result of an event that was not caused by a message.
type decision struct {
	w *work
	// before is the previous state of the operation.
	before event.OperationState
}

func worksOf(decisions []decision) []*work {
	works := make([]*work, len(decisions))
	for i := range decisions {
		works[i] = decisions[i].w
	}
	return works
}

func idsOf(works []*work) []string {
	ids := make([]string, len(works))
	for i, w := range works {
		ids[i] = w.row.Operation.ID
	}
	return ids
}

// decide applies an event that was not caused by a message, and commits the result.
func (d *Dispatcher) decide(ctx context.Context, operationID string, e engine.Event) (decision, error) {
	if _, err := uuid.Parse(operationID); err != nil {
		return decision{}, store.ErrNotFound
	}
	var one []decision
	err := retryConflicts(ctx, func() error {
		return d.runToCompletion(ctx, func(ctx context.Context) (err error) {
			one, err = d.decideAll(ctx, []string{operationID}, e, func(_ Tx, results map[string]error) error {
				problem, ok := results[operationID]
				if !ok {
					return store.ErrConflict
				}
				return problem
			})
			return err
		})
	})
	if err != nil {
		return decision{}, err
	}
	return one[0], nil
}

// MarkSlow marks an operation whose command has been executing for longer than usual, unless it has moved on.
func (d *Dispatcher) MarkSlow(ctx context.Context, c store.SentCommand) error {
	_, err := d.decide(ctx, c.OperationID, engine.Slow{Cursor: c.Cursor, Dispatch: c.Dispatch})
	if errors.Is(err, engine.ErrNotPossible) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// failUnsendable commits the failure of an operation whose command can never be sent, unless the operation has moved on.
func (d *Dispatcher) failUnsendable(ctx context.Context, u unsendable) (*work, error) {
	row := u.work.row
	d.log.Error("command cannot be sent and fails its operation", "operation_id", row.Operation.ID, "instance_id", row.Operation.InstanceID, "err", u.reason)
	one, err := d.decide(ctx, row.Operation.ID, engine.Unsendable{Cursor: row.Cursor, Reason: u.reason})
	if errors.Is(err, engine.ErrNotPossible) {
		return nil, nil
	}
	return one.w, err
}

// checkNewest rejects the retry of an operation if the instance has a newer one: the retry would undo the work of the newer operation
// or restore what it removed.
func checkNewest(newer string) error {
	if newer != "" {
		return fmt.Errorf("%w: the instance has the newer operation %s; retry that one instead", engine.ErrNotPossible, newer)
	}
	return nil
}

// decideAll applies an event to operations in one transaction. Before the commit it calls record with the result of each operation: nil, or an
// error that wraps store.ErrNotFound or engine.ErrNotPossible or concerns only this operation. An operation that another transaction
// holds or has just added has no result. decideAll returns the operations that the event has changed. The IDs must be unique UUIDs.
func (d *Dispatcher) decideAll(
	ctx context.Context, ids []string, e engine.Event, record func(tx Tx, results map[string]error) error,
) (decisions []decision, err error) {
	found, err := d.deps.Store.Load(ctx, ids)
	if err != nil {
		return nil, err
	}
	instanceIDs := map[string]bool{}
	for _, row := range found {
		instanceIDs[row.Operation.InstanceID] = true
	}
	var written []*work
	begun := d.deps.Now()
	err = d.deps.Store.InTx(ctx, func(tx Tx) error {
		instances, err := tx.LockInstances(ctx, slices.Sorted(maps.Keys(instanceIDs)))
		if err != nil {
			return err
		}
		rows, err := tx.Lock(ctx, ids)
		if err != nil {
			return err
		}
		_, retry := e.(engine.Retry)
		var newer map[string]string
		if retry {
			if newer, err = tx.Newer(ctx, ids); err != nil {
				return err
			}
		}
		results := make(map[string]error, len(ids))
		changed := map[string]*store.Instance{}
		for _, id := range ids {
			switch row := rows[id]; {
			case row != nil && found[id] != nil: // otherwise it is new, and its instance is not locked
				instance := instances[row.Operation.InstanceID]
				one, err := d.decideOne(ctx, row, instance, e, newer[id])
				if err != nil && !concernsOne(err) {
					return err
				}
				if results[id] = err; err == nil {
					decisions, changed[instance.ID] = append(decisions, one), instance
				}
			case row == nil && found[id] == nil:
				results[id] = store.ErrNotFound
			}
		}
		if len(decisions) > 0 {
			if _, err := tx.Write(ctx, changesOf(worksOf(decisions))); err != nil {
				return err
			}
			if retry {
				if err := tx.ReopenMembers(ctx, idsOf(worksOf(decisions)), d.deps.Now()); err != nil {
					return err
				}
			}
		}
		if err := record(tx, results); err != nil {
			return err
		}
		save := slices.SortedFunc(maps.Values(changed), func(a, b *store.Instance) int { return cmp.Compare(a.ID, b.ID) })
		if err := tx.SaveInstances(ctx, save); err != nil {
			return err
		}
		written = worksOf(decisions)
		return nil
	})
	if err != nil {
		d.uncache(written)
		d.outbox.add(written, begun) // the transaction may have been committed
		return nil, err
	}
	d.committed(written)
	return decisions, nil
}

// errUnreadable means that the definition of an operation cannot be read.
var errUnreadable = errors.New("the definition cannot be read")

// concernsOne reports whether an error concerns one operation of a transaction, and not the others.
func concernsOne(err error) bool {
	return errors.Is(err, engine.ErrNotPossible) || errors.Is(err, errUnreadable)
}

// decideOne applies an event to a locked operation, and updates its locked instance. newer is a newer operation of the instance, which
// prevents a retry.
func (d *Dispatcher) decideOne(ctx context.Context, row *store.Row, instance *store.Instance, e engine.Event, newer string) (one decision, err error) {
	if err := checkNewest(newer); err != nil {
		return one, err
	}
	w, err := d.newWork(ctx, row, true)
	if err != nil {
		if !isTransient(ctx, err) {
			err = fmt.Errorf("%w: %w", errUnreadable, err)
		}
		return one, err
	}
	if err := w.apply(e, d.deps.Now()); err != nil {
		return one, err
	}
	before, after := row.Status, w.row.Status
	switch {
	case before == event.Pending && after != event.Pending:
		instance.Waiting--
	case before != event.Pending && after == event.Pending:
		instance.Waiting++
	case before == event.InProgress && after.Final():
		updateInstance(w, instance)
	}
	return decision{w: w, before: before}, nil
}

// freesCapacity reports whether the operation has ended, and had a place in a limit.
func (d *Dispatcher) freesCapacity(w *work) bool {
	return w.row.Status.Final() && d.limited(limit.QueueOf(&w.row.Operation))
}
