package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/admission"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// admitBatch is the maximum number of operations that one transaction starts.
const admitBatch = 200

// limited reports whether a limit of operations applies to the operations of a queue.
func (d *Dispatcher) limited(q admission.Queue) bool {
	limits, _ := d.deps.Limits.Current()
	return len(q.Keys(limits)) > 0
}

// AdmitInstances starts the first pending operation of each of the instances.
func (d *Dispatcher) AdmitInstances(ctx context.Context, instanceIDs []string) error {
	slices.Sort(instanceIDs)
	var limited bool
	_, err := d.admit(ctx, func(ctx context.Context, tx Tx) ([]store.Candidate, error) {
		found, err := tx.PendingOf(ctx, instanceIDs)
		if err != nil {
			return nil, err
		}
		unlimited := slices.DeleteFunc(firstOfInstance(found), func(c store.Candidate) bool {
			ok := d.limited(c.Queue)
			limited = limited || ok
			return ok
		})
		return unlimited, nil
	})
	if err != nil {
		return fmt.Errorf("start pending operations: %w", err)
	}
	if limited {
		return d.Admit(ctx)
	}
	return nil
}

// Admit starts pending operations whose instances are free, as far as the limits allow. Global accounts take turns.
func (d *Dispatcher) Admit(ctx context.Context) error {
	pending, err := d.deps.Store.AnyPending(ctx)
	limits, _ := d.deps.Limits.Current()
	a := admitting{d: d, limits: limits}
	for more := pending; more && err == nil; {
		more, err = a.next(ctx)
	}
	if err != nil {
		return fmt.Errorf("admit pending operations: %w", err)
	}
	return nil
}

// admitting is one admission. It has several transactions.
type admitting struct {
	d      *Dispatcher
	limits *limit.Set
	// unreadable are operations that cannot start. They must not keep their turns from others.
	unreadable []string
	// open counts the turns of the last transaction that no operation has taken.
	open int
}

// next starts the operations that have the next turns. It reports whether others may have a turn now.
func (a *admitting) next(ctx context.Context) (more bool, err error) {
	result, err := a.d.admit(ctx, a.pick)
	if err != nil {
		return false, err
	}
	a.unreadable = append(a.unreadable, result.unreadable...)
	return len(result.unreadable) > 0 || result.works == admitBatch || result.works > 0 && a.open > 0, nil
}

// pick returns the operations that have the next turns.
func (a *admitting) pick(ctx context.Context, tx Tx) ([]store.Candidate, error) {
	a.open = 0
	bounded := a.limits.BoundsOperations()
	if bounded {
		if err := tx.LockAdmission(ctx); err != nil {
			return nil, err
		}
	}
	waiting, err := tx.PendingQueues(ctx, a.unreadable)
	if err != nil || len(waiting) == 0 {
		return nil, err
	}
	var running map[admission.Queue]int
	if bounded {
		if running, err = tx.Running(ctx); err != nil {
			return nil, err
		}
	}
	turns := admission.Next(waiting, running, a.limits, admitBatch)
	found, err := tx.Take(ctx, turns, a.unreadable, admitBatch)
	for _, t := range turns {
		if len(t.Keys(a.limits)) > 0 {
			a.open += t.N
		}
	}
	for _, c := range found {
		if len(c.Queue.Keys(a.limits)) > 0 {
			a.open--
		}
	}
	return found, err
}

// picker returns candidates whose instances it has locked.
type picker func(ctx context.Context, tx Tx) ([]store.Candidate, error)

// admitted is the result of one transaction of an admission.
type admitted struct {
	// works is the number of operations that were started or held.
	works int
	// unreadable are the operations whose definition cannot be read.
	unreadable []string
}

// admit starts the operations that pick returns, or holds them.
func (d *Dispatcher) admit(ctx context.Context, pick picker) (result admitted, err error) {
	err = d.runToCompletion(ctx, func(ctx context.Context) (err error) {
		result, err = d.admitAll(ctx, pick)
		return err
	})
	return result, err
}

func (d *Dispatcher) admitAll(ctx context.Context, pick picker) (result admitted, err error) {
	var works []*work
	begun := d.deps.Now()
	err = d.deps.Store.InTx(ctx, func(tx Tx) error {
		works, result = nil, admitted{}
		candidates, err := pick(ctx, tx)
		if err != nil {
			return err
		}
		if len(candidates) == 0 {
			return errNothingToDo
		}
		var operationIDs, instanceIDs []string
		for _, c := range candidates {
			operationIDs = append(operationIDs, c.ID)
			instanceIDs = append(instanceIDs, c.InstanceID)
		}
		slices.Sort(instanceIDs)
		instances, err := tx.LockInstances(ctx, instanceIDs)
		if err != nil {
			return err
		}
		rows, err := tx.Load(ctx, operationIDs)
		if err != nil {
			return err
		}
		var save []*store.Instance
		for _, c := range candidates {
			row, instance := rows[c.ID], instances[c.InstanceID]
			if row == nil || row.Status != event.Pending || row.Held() || instance.Running != "" {
				continue
			}
			w, err := d.newWork(ctx, row, true)
			if err != nil {
				if isTransient(ctx, err) {
					return err
				}
				logStuck(d.log, row, err)
				result.unreadable = append(result.unreadable, c.ID)
				continue
			}
			held, err := d.holdStart(w)
			if err != nil {
				return err
			}
			if held {
				works = append(works, w)
				continue
			}
			instance.Waiting--
			if err := startOn(w, instance, d); err != nil {
				return err
			}
			works = append(works, w)
			save = append(save, instance)
		}
		changes := changesOf(works)
		written, err := tx.Write(ctx, changes)
		if err != nil {
			return err
		}
		if len(written) != len(changes) {
			return store.ErrConflict
		}
		return tx.SaveInstances(ctx, save)
	})
	if errors.Is(err, errNothingToDo) {
		return result, nil
	}
	if err != nil {
		d.uncache(works)
		d.outbox.add(works, begun)
		return result, err
	}
	d.committed(works)
	_, err = d.carryOut(ctx, works, nil) // if an operation ends at once, the sweep starts the next one of its instance
	d.forgetUsers(ctx, works)
	result.works = len(works)
	return result, err
}

// firstOfInstance keeps the first candidate of each instance.
func firstOfInstance(candidates []store.Candidate) []store.Candidate {
	seen := map[string]bool{}
	var first []store.Candidate
	for _, c := range candidates {
		if !seen[c.InstanceID] {
			seen[c.InstanceID] = true
			first = append(first, c)
		}
	}
	return first
}
