package simulation_test

import (
	"slices"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

// limitsOf returns the limits of operations of a setup.
func limitsOf(s *schedule) *limit.Set {
	types := event.OperationTypes()
	set := &limit.Set{}
	add := func(i int, l limit.Limit) {
		if n := int(s.setup[setLimit+i] % 6); n > 3 {
			l.Operations = n - 3
			set.Limits = append(set.Limits, l)
		}
	}
	for i, t := range types {
		add(i, limit.Limit{Name: string(t), Scope: limit.Scope{limit.Type: {string(t)}}})
	}
	add(len(types), limit.Limit{Name: "account", Each: limit.GlobalAccount, Scope: limit.Scope{limit.Plan: {plans[0].Name}}})
	add(len(types)+1, limit.Limit{Name: "all"})
	if n := s.setup[setWeight] % 4; n > 1 {
		set.Weights = map[string]float64{accountID(0): float64(n)}
	}
	return set
}

// Current implements dispatch.Limits.
func (o *orchestrator) Current() (*limit.Set, int64) {
	set := *o.bounds.set
	switch o.w.bug {
	case bugNoTurns:
		set.Weights = map[string]float64{accountID(0): -1} // the more it has in progress, the sooner is its turn
	case bugLimitOfEachType:
		set.Limits = slices.Clone(set.Limits)
		for i := range set.Limits {
			if set.Limits[i].Name == "all" {
				set.Limits[i].Each = limit.Type
			}
		}
	case bugNoLimitAtDecision:
		if o.w.current != nil && o.w.current.kind <= taskRequests {
			return o.w.limits, o.bounds.version
		}
		return o.bounds.set, o.bounds.version
	default:
		return o.bounds.set, o.bounds.version
	}
	return &set, o.bounds.version
}

// inProgress returns how many operations in progress a limit counts.
func (w *world) inProgress(k limit.Key) (n int) {
	for _, op := range w.operations {
		if op.row.Status == event.InProgress && slices.Contains(op.limits, k) {
			n++
		}
	}
	return n
}

// checkLimits checks that no limit is exceeded.
func (w *world) checkLimits() {
	for _, op := range w.operations {
		if op.row.Status != event.InProgress {
			continue
		}
		for _, k := range op.limits {
			if n := w.inProgress(k); n > k.Limit.Operations {
				w.violate("%d operations are in progress, the limit %s allows at most %d", n, k, k.Limit.Operations)
			}
		}
	}
}

// checkTurns checks that no pending operation had an earlier turn than one that the transaction has started, although the places of that one in the
// limits would have let it start.
func (w *world) checkTurns() {
	for _, op := range w.admitted {
		for _, other := range w.operations {
			full := w.full(other)
			sameInstance := func(started *operation) bool { return started.instance == other.instance }
			if len(full) == 0 || !w.mayStart(other) || slices.ContainsFunc(w.admitted, sameInstance) || !op.needs(full) {
				continue
			}
			w.count(countTurns)
			upgrade := limit.IsUpgrade(op.kind)
			if upgrade != limit.IsUpgrade(other.kind) {
				if upgrade {
					w.violate("upgrade %d starts before operation %d of a customer", op.n, other.n)
				}
				continue
			}
			// The last of the operations of the account that the transaction has started with the same places had at least that many before it.
			before, behind := w.load(op.account(), upgrade)-1, w.load(other.account(), upgrade)
			for _, o := range w.admitted {
				if o.account() == op.account() && limit.IsUpgrade(o.kind) == upgrade && len(o.limits) > 0 && !o.needs(full) {
					before--
				}
			}
			if float64(before)/w.limits.Weight(op.account()) > float64(behind)/w.limits.Weight(other.account()) {
				w.violate("operation %d of %s, which has %d in progress, starts before operation %d of %s, which has %d",
					op.n, op.account(), before, other.n, other.account(), behind)
			}
		}
	}
	w.admitted = w.admitted[:0]
}

// full returns the limits of an operation that had no room when the transaction gave its last turn. An operation that it has started and that
// ended at once had a place.
func (w *world) full(op *operation) (full []limit.Key) {
	for _, k := range op.limits {
		n := w.inProgress(k)
		for _, started := range w.admitted {
			if started.row.Status != event.InProgress && slices.Contains(started.limits, k) {
				n++
			}
		}
		if n >= k.Limit.Operations {
			full = append(full, k)
		}
	}
	return full
}

// needs reports whether all of the limits apply to the operation.
func (op *operation) needs(limits []limit.Key) bool {
	return !slices.ContainsFunc(limits, func(k limit.Key) bool { return !slices.Contains(op.limits, k) })
}

// mayStart reports whether only a limit can keep an operation from starting.
func (w *world) mayStart(op *operation) bool {
	i := w.db.instances[instanceID(op.instance)]
	return op.row.Status == event.Pending && !op.row.Held() && i.Running == "" && w.firstPending(op.instance) == op
}

func (op *operation) account() string { return op.row.Operation.Context.GlobalAccountID }

// load returns how many upgrades or other operations of a global account are in progress, as far as they have limits.
func (w *world) load(account string, upgrade bool) (n int) {
	for _, op := range w.operations {
		if len(op.limits) > 0 && op.account() == account && op.row.Status == event.InProgress && limit.IsUpgrade(op.kind) == upgrade {
			n++
		}
	}
	return n
}
