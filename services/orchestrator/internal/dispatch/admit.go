package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// admitBatch is the maximum number of operations that one transaction starts.
const admitBatch = 200

// AdmitInstances starts the first pending operation of each of the instances.
func (d *Dispatcher) AdmitInstances(ctx context.Context, instanceIDs []string) error {
	slices.Sort(instanceIDs)
	var limited bool
	_, err := d.admit(ctx, func(ctx context.Context, tx Tx) ([]store.Candidate, error) {
		found, err := tx.PendingOf(ctx, instanceIDs)
		if err != nil {
			return nil, err
		}
		first := firstOfInstance(found)
		unlimited := slices.DeleteFunc(first, func(c store.Candidate) bool {
			_, ok := d.cfg.Admission[c.Type]
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

// Admit starts pending operations whose instances are free, in order of arrival, up to the limit of each type.
func (d *Dispatcher) Admit(ctx context.Context) error {
	types, err := d.deps.Store.PendingTypes(ctx, event.OperationTypes())
	if err != nil {
		return err
	}
	for _, t := range types {
		if err := d.admitType(ctx, t); err != nil {
			return fmt.Errorf("admit %s: %w", t, err)
		}
	}
	return nil
}

func (d *Dispatcher) admitType(ctx context.Context, t event.OperationType) error {
	limit, limited := d.cfg.Admission[t]
	for {
		started, err := d.admit(ctx, func(ctx context.Context, tx Tx) ([]store.Candidate, error) {
			capacity := math.MaxInt
			if limited {
				running, err := tx.Admission(ctx, t)
				if err != nil {
					return nil, err
				}
				capacity = limit - running
			}
			if capacity <= 0 {
				return nil, errNothingToDo
			}
			found, err := tx.Pending(ctx, t, min(capacity, admitBatch))
			if err != nil {
				return nil, err
			}
			return firstOfInstance(found), nil
		})
		if err != nil {
			return err
		}
		if started < admitBatch {
			return nil
		}
	}
}

// picker returns candidates whose instances it has locked.
type picker func(ctx context.Context, tx Tx) ([]store.Candidate, error)

// admit starts the operations that pick returns, or holds them, and returns their number.
func (d *Dispatcher) admit(ctx context.Context, pick picker) (started int, err error) {
	err = d.runToCompletion(ctx, func(ctx context.Context) (err error) {
		started, err = d.admitAll(ctx, pick)
		return err
	})
	return started, err
}

func (d *Dispatcher) admitAll(ctx context.Context, pick picker) (started int, err error) {
	var works []*work
	begun := d.deps.Now()
	err = d.deps.Store.InTx(ctx, func(tx Tx) error {
		works = nil
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
		return 0, nil
	}
	if err != nil {
		d.uncache(works)
		d.outbox.add(works, begun)
		return 0, err
	}
	d.committed(works)
	_, err = d.carryOut(ctx, works, nil) // if an operation ends at once, the sweep starts the next one of its instance
	d.forgetUsers(ctx, works)
	return len(works), err
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
