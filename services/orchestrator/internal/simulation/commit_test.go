package simulation_test

import (
	"fmt"
	"strconv"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	idPrefix = "0fffffff-0000-7000-8000-" // of a time after the simulated ones
	// latePrefix is of a time before the simulated ones, as if the request had been late: it is below store.Marks.
	latePrefix = "0193a3c5-0000-7000-8000-"
)

// operationID returns an id. Each fourth operation is a late one.
func operationID(n int) string {
	if n%4 == 3 {
		return fmt.Sprintf("%s%012d", latePrefix, n)
	}
	return fmt.Sprintf("%s%012d", idPrefix, n)
}

// numberOf returns the number in an id from operationID.
func numberOf(id string) int {
	n, err := strconv.Atoi(id[len(idPrefix):])
	if err != nil {
		panic(err)
	}
	return n
}

func instanceID(n int) string { return "i-" + strconv.Itoa(n) }

func accountID(n int) string { return "ga-" + strconv.Itoa(n) }

// committed checks the invariants of a committed change.
func (w *world) committed(s *stored, before *store.Row, c *store.Change) {
	n := numberOf(s.row.Operation.ID)
	op := w.byID[n]
	var state engine.State
	w.commits++
	w.count(countCommits)
	if before == nil {
		op = w.insert(n, s)
		state = engine.New(s.row.Operation)
		if s.row.Status == event.Pending {
			w.count(countWaits)
		}
	} else {
		state = before.State
	}
	op.journal = append(op.journal, c.History...)
	t := w.current
	chain := t.decided[n]
	delete(t.decided, n)
	t.written[n] = true
	started := false
	for i := range chain {
		c := &chain[i]
		w.count(countTransitions)
		if w.traced {
			w.trace("operation %d: %T: %s at %d/%d, cursor %d", op.n, c.event, c.next.Status, c.next.Stage, c.next.Step, c.next.Cursor)
		}
		switch c.event.(type) {
		case engine.Start:
			started = true
			w.checkOrder(op)
			w.count(countStarts)
			if before != nil {
				w.count(countAdmitted)
				w.admitted = append(w.admitted, op)
			}
			i := &w.instances[op.instance]
			i.starts++
			op.model.saved = append(op.model.saved[:0], i.saved...)
		case engine.Retry:
			op.since = w.commits
		case engine.Release:
			if c.next.Status == event.Pending { // it can start from now on, with the admission of the sweep that has released it
				op.since = w.commits
			}
		}
		op.facts = append(op.facts, c.effects.Facts...)
		op.trace(state.Details, c.next.Details, c.effects.History)
		w.check(op, &state, c.event, &c.next, &c.effects, c.at, c.bounds)
		state = c.next
	}
	if state.Cursor != s.row.Cursor || state.Dispatch != s.row.Dispatch || state.Status != s.row.Status {
		w.violate("operation %d is written as %s at cursor %d, but the engine decided %s at %d", n, s.row.Status, s.row.Cursor, state.Status, state.Cursor)
	}
	if len(chain) > 0 {
		w.checkSent(op, &chain[len(chain)-1])
	}
	alone := started && before != nil // no message waits for its command
	if len(chain) > 0 && !alone {
		_, alone = chain[len(chain)-1].event.(engine.Signal)
	}
	if t.owes[n] = -1; len(chain) > 0 && chain[len(chain)-1].effects.Dispatch && state.InFlight() && !alone {
		t.owes[n] = state.Cursor
	}
	if before == nil {
		w.checkPreempted(op)
	}
	was := event.Pending
	if before != nil {
		was = before.Status
	}
	if state.Status.Final() && (was == event.InProgress || started) {
		w.left(op, started && was == event.Pending, c)
	}
}

// seen records a row that a task has read.
func (w *world) seen(row *store.Row) *store.Row {
	t, n := w.current, numberOf(row.Operation.ID)
	if t == nil || t.kind > taskRequests {
		return row
	}
	if w.bug == bugStaleFromTheCache {
		if old := t.process.rows[n]; old != nil {
			again := *old
			row = &again
		}
		t.process.rows[n] = row
	}
	if _, known := t.owes[n]; !known { // only the first read matters
		if t.owes[n] = -1; row.InFlight() {
			t.owes[n] = row.Cursor
		}
	}
	return row
}

// early is a planted bug: it publishes commands before they are committed.
func (w *world) early(changes []*store.Change) {
	if w.bug != bugPublishBeforeCommit {
		return
	}
	for _, c := range changes {
		op := w.byID[numberOf(c.Row.Operation.ID)]
		if op == nil || !c.Row.InFlight() {
			continue
		}
		worker, command := engine.Command(op.p, &c.Row.State)
		w.checkCommand(&message{operation: op.n, worker: worker, command: command})
	}
}

// left records the effect of an ended operation on its instance.
func (w *world) left(op *operation, atOnce bool, c *store.Change) {
	i, s := &w.instances[op.instance], &op.row.State
	i.saved = op.model.saved
	if op.kind == event.Deprovision && s.Status == event.Succeeded && len(s.NotCompleted) == 0 {
		i.saved = nil
	}
	if atOnce {
		w.count(countNothingToDo)
		return // the sweep starts waiting operations
	}
	t := w.current
	if c.Release != nil || t.kind == taskAction {
		t.freed = append(t.freed, freed{instance: op.instance, starts: i.starts, commit: w.commits})
	}
}

// insert adds an operation to the model.
func (w *world) insert(n int, s *stored) *operation {
	op := &operation{stored: s, request: w.asked[n], p: w.set[w.asked[n].kind], since: w.commits, published: map[string]bool{}}
	q := limit.QueueOf(&s.row.Operation)
	op.limits = q.Keys(w.limits)
	op.model.reset()
	w.operations = append(w.operations, op)
	w.byID[n] = op
	return op
}

// unfinished returns the unfinished operations of an instance, in order of arrival.
func (w *world) unfinished(instance int) (found []*operation) {
	for _, op := range w.operations {
		if op.instance == instance && !op.row.Status.Final() {
			found = append(found, op)
		}
	}
	return found
}

func (w *world) firstPending(instance int) *operation {
	for _, op := range w.operations {
		if op.instance == instance && op.row.Status == event.Pending {
			return op
		}
	}
	return nil
}

// newer reports whether the instance has a later operation, except cancelled ones that are not an update after an update.
func (w *world) newer(op *operation) bool {
	after := false
	for _, other := range w.operations {
		counts := other.row.Status != event.Cancelled || other.kind == event.Update && op.kind == event.Update
		if after && other.instance == op.instance && counts {
			return true
		}
		after = after || other == op
	}
	return false
}
