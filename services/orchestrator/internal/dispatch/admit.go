package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// admitBatch is the maximum number of operations that one transaction starts.
const admitBatch = 200

// limited reports whether a limit of operations applies to the operations of a queue.
func (d *Dispatcher) limited(q limit.Queue) bool {
	limits, _ := d.deps.Limits.Current()
	return len(q.Keys(limits)) > 0
}

// admitInstances starts the first pending operation of each instance if no limit applies to it, and otherwise triggers an admission.
func (d *Dispatcher) admitInstances(ctx context.Context, instanceIDs []string) error {
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
		d.admitSoon()
	}
	return nil
}

// admitSoon lets RunAdmission start an admission, so that the caller does not wait for it. Several calls may share one.
func (d *Dispatcher) admitSoon() {
	select {
	case d.admissions <- struct{}{}:
	default:
	}
}

// RunAdmission starts pending operations when limits may have room for them, until ctx ends. The sweep starts those that an error leaves.
func (d *Dispatcher) RunAdmission(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.admissions:
		}
		if err := d.Admit(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("pending operations not admitted", "err", err)
		}
	}
}

// window is the number of queues that the first transaction of an admission reads. An end of an operation makes room for few others, and these
// must not wait until thousands of queues are read.
const window = 500

// Admit starts pending operations whose instances are free, as far as the limits allow. Global accounts take turns.
func (d *Dispatcher) Admit(ctx context.Context) error {
	pending, err := query(ctx, d, d.deps.Store.AnyPending)
	limits, _ := d.deps.Limits.Current()
	a := admitting{d: d, limits: limits, most: window}
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
	// most is the number of queues to read, and partial reports whether the last transaction has not read all.
	most    int
	partial bool
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
	a.open += result.held
	a.most = math.MaxInt32
	return a.partial || len(result.unreadable) > 0 || result.works == admitBatch || result.works > 0 && a.open > 0, nil
}

// pick returns the operations that have the next turns.
func (a *admitting) pick(ctx context.Context, tx Tx) ([]store.Candidate, error) {
	a.open, a.partial = 0, false
	var running map[limit.Queue]int
	if a.limits.BoundsOperations() {
		if err := tx.LockAdmission(ctx); err != nil {
			return nil, err
		}
		var err error
		if running, err = tx.Running(ctx); err != nil {
			return nil, err
		}
	}
	waiting, err := a.queues(ctx, tx, running)
	if err != nil || len(waiting) == 0 {
		return nil, err
	}
	turns := limit.NextTurns(waiting, running, a.limits, admitBatch)
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

// queues returns the queues that may have room. It leaves out upgrades if it has not read all queues of customers, which come first.
func (a *admitting) queues(ctx context.Context, tx Tx, running map[limit.Queue]int) (waiting []limit.Waiting, err error) {
	for _, upgrades := range []bool{false, true} {
		w := limit.Window{Upgrades: upgrades, Most: a.most}
		if a.partial || !w.HasRoom(running, a.limits) {
			continue
		}
		after := a.d.windows[upgrades]
		if a.most == window {
			w.After = after.get()
		}
		found, err := tx.PendingQueues(ctx, w, a.unreadable)
		if err != nil {
			return nil, err
		}
		a.partial = w.After != limit.Queue{} || len(found) == w.Most
		if a.most == window {
			next := limit.Queue{}
			if len(found) == w.Most {
				next = found[len(found)-1].Queue
			}
			after.set(next)
		}
		waiting = append(waiting, found...)
	}
	return waiting, nil
}

// place is a queue that is shared by goroutines.
type place struct {
	mu sync.Mutex
	q  limit.Queue
}

func (p *place) get() limit.Queue {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.q
}

func (p *place) set(q limit.Queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.q = q
}

// picker returns candidates whose instances it has locked.
type picker func(ctx context.Context, tx Tx) ([]store.Candidate, error)

// admitted is the result of one transaction of an admission.
type admitted struct {
	// works is the number of operations that were started or held, and held the number of the latter.
	works, held int
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
				result.held++
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
