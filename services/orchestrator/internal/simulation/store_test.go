package simulation_test

import (
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// release frees the instance, in the same statement that ends the operation.
func (w *world) release(k *work) {
	i := &w.instances[k.op.instance]
	if w.bug != bugInstanceNotFreed && i.running == k.op.n {
		i.running = -1
	}
	i.completed = k.leaves()
	if w.bug != bugDetailsNotLeft {
		i.details = k.row.state.Details
	}
	i.saved = k.op.model.saved
	if k.gone() {
		i.details, i.saved = nil, nil
	}
	k.waiting = i.waiting
}

// leave is release inside a transaction that holds the instance.
func (w *world) leave(k *work) { w.release(k) }

// commit makes the changes of a work durable, and holds them against the invariants.
func (w *world) commit(k *work) {
	if len(k.changes) == 0 {
		return
	}
	op := k.op
	w.commits++
	op.version++
	k.row.version = op.version
	w.count(countCommits)
	for i := range k.changes {
		c := &k.changes[i]
		w.count(countTransitions)
		op.entries, op.facts = append(op.entries, c.effects.History...), append(op.facts, c.effects.Facts...)
		for j := range c.effects.History {
			h := &c.effects.History[j]
			l := line{cursor: h.Cursor, kind: h.Kind, result: h.Outcome}
			if h.Kind == engine.KindStep {
				l.step = op.p.Stages[h.Stage].Steps[h.Step].Name
			}
			op.history = append(op.history, l)
		}
		if w.traced {
			w.trace("operation %d: %T: %s at %d/%d, cursor %d", op.n, c.event, c.next.Status, c.next.Stage, c.next.Step, c.next.Cursor)
		}
		before := op.state // what was read, as long as nobody writes over others
		op.state = c.next
		w.check(op, &before, c.event, &c.next, &c.effects, c.at)
	}
}

const operationID = "0193a3c5-0000-7000-8000-000000000001"

// insert adds a row.
func (w *world) insert(op *operation) {
	w.operations = append(w.operations, op)
	w.byID[op.n] = op
}

// unfinished are the operations of an instance that have not ended, in order of arrival.
func (w *world) unfinished(instance int) (found []*operation) {
	for _, op := range w.operations {
		if op.instance == instance && !op.state.Status.Final() {
			found = append(found, op)
		}
	}
	return found
}

func (w *world) firstPending(instance int) *operation {
	for _, op := range w.operations {
		if op.instance == instance && op.state.Status == event.Pending {
			return op
		}
	}
	return nil
}

func (w *world) running(kind event.OperationType) (n int) {
	for _, op := range w.operations {
		if op.kind == kind && op.state.Status == event.InProgress {
			n++
		}
	}
	return n
}

// newer tells that the instance has a later operation that was not cancelled.
func (w *world) newer(op *operation) bool {
	after := false
	for _, other := range w.operations {
		if after && other.instance == op.instance && other.state.Status != event.Cancelled {
			return true
		}
		after = after || other == op
	}
	return false
}
