package simulation_test

import (
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// begin lets an operator ask for something, or the bus refuse a command for good.
func (w *world) begin(c choice) {
	o := &w.orchestrators[c.a%orchestrators]
	t := &o.tasks[taskAction]
	if t.working() || len(w.operations) == 0 {
		return
	}
	op := w.operations[int(c.b)%len(w.operations)]
	t.operation = op.n
	switch n := c.c % 16; {
	case n == 15: // the bus cannot carry the current command
		t.event = engine.Unsendable{Cursor: op.state.Cursor, Reason: "too large"}
	case n%3 == 0:
		t.event = engine.Cancel{Reason: "not wanted"}
	case n%3 == 1:
		t.event = engine.Retry{By: "me"}
	default:
		step := "none"
		if at := op.state.Position(op.p); at != nil {
			step = at.Step
		}
		t.event = engine.SkipStep{Step: step, By: "me"}
	}
	t.plan = append(t.plan, phaseAct)
}

// act carries out what an operator asks for, in one transaction that holds the instance and the row.
func (w *world) act(o *orchestrator, t *task, fault uint16) {
	op := w.byID[t.operation]
	o.drop(op.n)
	if w.fails(fault) {
		t.abort()
		return
	}
	if _, retry := t.event.(engine.Retry); retry && w.newer(op) && w.bug != bugRetryOfAnOldOne {
		w.count(countRefused)
		t.abort()
		return
	}
	k := w.load(op)
	err := w.decide(k, t.event, w.clock(o))
	w.checkAllowed(op, t.event, err)
	if err != nil {
		w.count(countRefused)
		t.abort()
		return
	}
	w.count(countActions)
	i := &w.instances[op.instance]
	switch before, after := op.state.Status, k.row.state.Status; {
	case before == event.Pending && after != event.Pending:
		i.waiting--
	case before != event.Pending && after == event.Pending:
		i.waiting++
		op.since = w.commits
	case before == event.InProgress && after.Final():
		w.leave(k)
	}
	w.commit(k)
	w.checkDatabase()
	if w.silent(fault) {
		t.abort()
		return
	}
	t.done = []*work{k}
	then := []phase{phaseSettle}
	if s := k.row.state.Status; s == event.Pending || s.Final() {
		t.free = append(t.free, freed{instance: op.instance, starts: i.starts, commit: w.commits})
	}
	t.after(w, t.done, then...)
}
