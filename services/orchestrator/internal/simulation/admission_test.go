package simulation_test

import (
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// startOn starts a pending operation on a free instance.
func (w *world) startOn(k *work, at time.Time) {
	i := &w.instances[k.op.instance]
	start := engine.Start{Details: i.details}
	if k.op.kind == event.Deprovision {
		start.Completed = i.completed
	}
	k.op.model.saved = append([]string(nil), i.saved...)
	if err := w.decide(k, start, at); err != nil {
		w.violate("a pending operation does not start: %v", err)
	}
	i.starts++
	w.count(countStarts)
	if k.row.state.Status == event.InProgress {
		i.running = k.op.n
		return
	}
	w.leave(k)
	w.count(countNothingToDo)
}

// takeIn takes in requests, of each instance the first.
func (w *world) takeIn(o *orchestrator, t *task, fault uint16) {
	if w.fails(fault) {
		t.abort()
		return
	}
	at := w.clock(o)
	var seen [instances]bool
	batch := t.batch[:0:0]
	limited := false
	for _, m := range t.batch {
		if seen[m.request.instance] {
			continue
		}
		seen[m.request.instance] = true
		batch = append(batch, m)
		if op := w.byID[m.operation]; op != nil {
			k := w.load(op)
			k.owes, k.republish = true, w.bug != bugNoRepublish
			t.works = append(t.works, k)
			w.count(countKnown)
			continue
		}
		limited = w.add(t, m.request, at) || limited
	}
	t.batch = batch
	w.checkDatabase()
	if w.silent(fault) {
		w.forgetAll(o, t)
		return
	}
	t.done = t.works
	w.remember(o, t.works)
	if limited {
		t.after(w, t.done, phaseSettle, phaseAdmit, phaseAck)
	} else {
		t.after(w, t.done, phaseSettle, phaseAck)
	}
}

// add takes in one new request: it makes way for a deprovisioning, and starts the operation or lets it wait.
func (w *world) add(t *task, r request, at time.Time) (limited bool) {
	i := &w.instances[r.instance]
	if r.kind == event.Deprovision && (i.running >= 0 || i.waiting > 0) && w.bug != bugNoPreemption {
		w.preempt(t, i, r, at)
	}
	op := w.arenas.operations.next()
	*op = operation{request: r, p: w.set[r.kind], state: engine.New(event.Operation{
		ID: operationID, Type: r.kind, InstanceID: "i", Plan: i.plan, Temporary: r.temporary,
	}), since: w.commits, history: op.history[:0], entries: op.entries[:0], facts: op.facts[:0], model: op.model}
	op.model.reset()
	w.insert(op)
	w.checkPreempted(op)
	k := w.load(op)
	k.inserted = true
	t.works = append(t.works, k)
	if _, limited := w.limit[r.kind]; limited || i.running >= 0 || i.waiting > 0 {
		i.waiting++
		w.count(countWaits)
		return limited
	}
	w.startOn(k, at)
	w.commit(k)
	return false
}

// preempt cancels what a deprovisioning need not wait for.
func (w *world) preempt(t *task, i *instance, r request, at time.Time) {
	for _, op := range w.unfinished(r.instance) {
		if op.kind == event.Deprovision {
			continue
		}
		pending := op.state.Status == event.Pending
		k := w.load(op)
		if err := w.decide(k, engine.Cancel{Reason: "preempted"}, at); err != nil && !errors.Is(err, engine.ErrNotPossible) {
			w.violate("a deprovisioning cannot cancel: %v", err)
		}
		w.count(countPreempted)
		t.works = append(t.works, k)
		switch {
		case pending:
			i.waiting--
		case k.row.state.Status.Final():
			w.leave(k)
		}
		w.commit(k)
	}
}

// wake tells the engine about operations whose time has come, in one transaction that holds their rows.
func (w *world) wake(o *orchestrator, t *task, p phase, fault uint16) {
	var rest []phase
	switch {
	case p == phaseLost:
		rest = []phase{phaseDue}
	case p == phaseDue:
		rest = []phase{phaseUnanswered}
	case p == phaseUnanswered && w.pending() && w.bug != bugNoSweepOfPending:
		rest = []phase{phaseAdmit}
	}
	lostBefore, noticed := time.Time{}, w.losses
	if p == phaseLost {
		lostBefore = w.lostAt
	}
	now := w.clock(o)
	t.works, t.done, t.free, t.admit = nil, nil, nil, false
	for _, op := range w.operations {
		switch s := &op.state; {
		case p == phaseDue && (s.DueAt.IsZero() || s.DueAt.After(now) || w.bug == bugNoSweepOfDue):
			continue
		case p == phaseLost && !s.InFlight():
			continue
		case p == phaseUnanswered && (s.Status != event.InProgress || !s.DueAt.IsZero() || s.ExecuteBefore.After(now) || w.bug == bugNoSweepOfUnanswered):
			continue
		}
		t.works = append(t.works, w.load(op))
	}
	if len(t.works) == 0 {
		o.noticed = noticed
		t.plan = append(t.plan, rest...)
		return
	}
	if w.fails(fault) {
		w.forgetAll(o, t)
		return
	}
	alive := !w.absent != (fault == faultLiar)
	for _, k := range t.works {
		due := engine.Due{WorkerAlive: alive || !k.row.state.InFlight(), LostBefore: lostBefore, ResultsOnly: p == phaseLost && w.resultsOnly}
		if err := w.decide(k, due, now); p == phaseLost && errors.Is(err, engine.ErrNotPossible) {
			if errors.Is(err, engine.ErrNobody) {
				noticed = o.noticed // it is looked again
			}
			continue
		} else if err != nil {
			w.violate("an operation that is due refuses: %v", err)
		}
		if p == phaseLost {
			w.count(countLostAgain)
		}
		k.release = k.effects.Finished
		w.commit(k)
		if k.release {
			w.release(k)
		}
	}
	w.checkDatabase()
	if w.silent(fault) {
		w.forgetAll(o, t)
		return
	}
	w.remember(o, t.works)
	o.noticed = noticed
	t.done = t.works
	t.after(w, t.done, append([]phase{phaseSettle}, rest...)...)
}

func (w *world) pending() bool {
	for _, op := range w.operations {
		if op.state.Status == event.Pending {
			return true
		}
	}
	return false
}

// admitFree starts, on instances that became free, the first of the operations that wait for them.
func (w *world) admitFree(o *orchestrator, t *task, fault uint16) {
	if w.fails(fault) {
		t.free = nil // the sweep finds them
		return
	}
	var first []*operation
	limited := false
	for _, f := range t.free {
		op := w.firstPending(f.instance)
		if op == nil || w.instances[f.instance].running >= 0 && w.bug != bugTwoOfAnInstance {
			continue
		}
		if _, ok := w.limit[op.kind]; ok {
			limited = true
			continue
		}
		first = append(first, op)
	}
	if limited && !t.planned(phaseAdmit) {
		t.plan = append([]phase{phaseAdmit}, t.plan...)
	}
	w.startAll(o, t, first, fault)
}

// admit starts pending operations whose instances are free, of every type that has room, in order of arrival.
func (w *world) admit(o *orchestrator, t *task, fault uint16) {
	if w.fails(fault) {
		return
	}
	var first []*operation
	for _, kind := range event.OperationTypes() {
		room := maxOperations
		if limit, ok := w.limit[kind]; ok {
			room = limit - w.running(kind)
			if w.bug == bugNoLimit {
				room = limit
			}
		}
		for _, op := range w.operations {
			if room <= 0 {
				break
			}
			if op.kind != kind || op.state.Status != event.Pending || w.instances[op.instance].running >= 0 {
				continue
			}
			if w.bug != bugOvertaking && w.firstPending(op.instance) != op {
				continue
			}
			first = append(first, op)
			room--
		}
	}
	w.startAll(o, t, first, fault)
}

// startAll starts the first of each instance.
func (w *world) startAll(o *orchestrator, t *task, first []*operation, fault uint16) {
	t.works = nil
	var seen [instances]bool
	for _, op := range first {
		if seen[op.instance] {
			continue
		}
		seen[op.instance] = true
		w.checkOrder(op)
		k := w.load(op)
		w.instances[op.instance].waiting--
		w.startOn(k, w.clock(o))
		w.commit(k)
		t.works = append(t.works, k)
		w.count(countAdmitted)
	}
	w.checkDatabase()
	if w.silent(fault) {
		for _, k := range t.works {
			o.drop(k.op.n)
		}
		return
	}
	w.remember(o, t.works)
	t.out = nil
	t.collect(w, t.works)
	plan := make([]phase, 0, len(t.out)+1+len(t.plan))
	for range t.out {
		plan = append(plan, phasePublish)
	}
	t.plan = append(append(plan, phaseConfirmed), t.plan...)
}
