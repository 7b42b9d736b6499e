package simulation_test

import (
	"errors"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// checkDatabase checks the invariants after each transaction.
func (w *world) checkDatabase() {
	for i := range w.instances {
		running, waiting := "", 0
		for _, op := range w.operations {
			switch {
			case op.instance != i:
			case op.row.Status == event.Pending:
				waiting++
			case op.row.Status == event.InProgress && running != "":
				w.violate("operations %s and %d of instance %d are in progress", running, op.n, i)
			case op.row.Status == event.InProgress:
				running = op.row.Operation.ID
			}
		}
		in := w.db.instances[instanceID(i)]
		if in == nil {
			in = &store.Instance{}
		}
		if in.Running != running || in.Waiting != waiting {
			w.violate("instance %d has %q in progress and %d waiting, but it should be %q and %d", i, in.Running, in.Waiting, running, waiting)
		}
	}
	w.checkLimits()
	w.checkTurns()
}

// checkOrder checks that the operations of an instance start in order of arrival.
func (w *world) checkOrder(op *operation) {
	if first := w.firstPending(op.instance); first != nil && first.row.Arrived < op.row.Arrived {
		w.violate("operation %d overtakes operation %d", op.n, first.n)
	}
}

// checkPreempted checks that a deprovisioning cancels every unfinished operation except another deprovisioning.
func (w *world) checkPreempted(by *operation) {
	if by.kind != event.Deprovision {
		return
	}
	for _, op := range w.unfinished(by.instance) {
		f := op.p.Finally()
		ending := op.row.Status == event.InProgress && f >= 0 && op.row.Stage >= f
		if op != by && op.kind != event.Deprovision && op.row.CancelReason == "" && !ending {
			w.violate("deprovisioning %d waits for %s %d, which is %s", by.n, op.kind, op.n, op.row.Status)
		}
	}
}

// checkAllowed checks that an action succeeds exactly if the state of the operation allows it.
func (w *world) checkAllowed(op *operation, e engine.Event, err error) {
	if err != nil && !errors.Is(err, engine.ErrNotPossible) {
		w.violate("%T: %v", e, err)
	}
	s, f := &op.row.State, op.p.Finally()
	allowed := false
	switch e := e.(type) {
	case engine.Cancel:
		allowed = !s.Status.Final() && (s.Status != event.InProgress || f < 0 || s.Stage < f)
	case engine.Retry:
		allowed = s.Status == event.Failed && (e.Stage == "" || stageOf(op.p, e.Stage) <= s.Stage)
		if allowed && err == nil && e.Stage != "" && stageOf(op.p, e.Stage) < s.Stage {
			w.count(countFromEarlierStage)
		}
		if e.Step != "" {
			stage, step, ok := op.p.Find(e.Step)
			allowed = allowed && ok && (stage < s.Stage || step <= s.Step)
			if err == nil && step > 0 {
				w.count(countFromStep)
			}
		}
	case engine.SkipStep:
		at := s.Position(op.p)
		allowed = at != nil && at.Step == e.Step
	case engine.Extend:
		if (err == nil) && (!s.InFlight() || e.Cursor != s.AwaitedCursor()) {
			w.violate("more time for cursor %d of an operation that awaits %d", e.Cursor, s.AwaitedCursor())
		}
		return // checkExtend checks the rest, at the time of the decision
	case engine.Unsendable:
		allowed = s.InFlight() && e.Cursor == s.Cursor
	}
	if (err == nil) != allowed {
		w.violate("%T of an operation that is %s is allowed: %t, want %t", e, s.Status, err == nil, allowed)
	}
	if _, retry := e.(engine.Retry); retry && err == nil && w.newer(op) {
		w.violate("operation %d is retried although the instance has a newer one", op.n)
	}
}

// checkCommand checks that a published command was committed.
func (w *world) checkCommand(msg *message) {
	op, c := w.byID[msg.operation], &msg.command
	sent := op.model.commands[c.Cursor]
	at := event.Position{Stage: c.Stage, Step: c.Step, StageAttempt: c.StageAttempt, StepAttempt: c.StepAttempt}
	if sent == nil || sent.at != at {
		w.violate("command %+v was never committed", at)
	}
	if i, j, ok := op.p.Find(c.Step); !ok || op.p.Stages[i].Steps[j].Worker != msg.worker || msg.worker == process.WorkerOrchestrator {
		w.violate("step %s is not for worker %s", c.Step, msg.worker)
	}
}

// checkPut checks that the stream does not drop a command with a new dispatch number.
func (w *world) checkPut(msg *message, dropped bool) {
	op := w.byID[msg.operation]
	sent := op.model.commands[msg.command.Cursor]
	if dropped && msg.command.Dispatch > sent.dispatch {
		w.violate("dispatch %d of command %d is dropped as a duplicate", msg.command.Dispatch, msg.command.Cursor)
	}
	sent.dispatch = max(sent.dispatch, msg.command.Dispatch)
	sent.out = sent.out || msg.command.Dispatch == op.row.Dispatch
}

// checkPublished checks that the command caused by a message is published before the message is acknowledged.
func (w *world) checkPublished(t *task, m *message) {
	op := w.byID[m.operation]
	if op == nil {
		return // checkAck reports it
	}
	cursor, owes := t.owes[op.n]
	if s := &op.row.State; owes && s.InFlight() && !t.withheld[op.n] && s.Cursor == cursor && op.model.commands[s.AwaitedCursor()].dispatch == 0 {
		w.violate("messages of operation %d are acknowledged before command %d is published", op.n, cursor)
	}
}

// checkAck checks that an acknowledged message has had its effect.
func (w *world) checkAck(m *message) {
	op := w.byID[m.operation]
	switch {
	case op == nil:
		w.violate("the request for operation %d is acknowledged before it is accepted", m.operation)
	case m.isResult && op.row.Awaits() && op.row.AwaitedCursor() == m.result.Cursor:
		w.violate("the result of cursor %d is acknowledged but not applied", m.result.Cursor)
	}
}

// checkWoken checks that a task that frees an instance starts the next operation, unless a call failed.
func (w *world) checkWoken(t *task) {
	for _, f := range t.freed {
		i := w.db.instances[instanceID(f.instance)]
		if t.faulted || i != nil && i.Running != "" || w.instances[f.instance].starts != f.starts {
			continue
		}
		op := w.firstPending(f.instance)
		if op == nil || op.since >= f.commit || op.row.Held() || t.withheld[op.n] {
			continue
		}
		if len(op.limits) == 0 {
			w.violate("operation %d waits for instance %d, which was freed, and is not started", op.n, f.instance)
		}
	}
}

// checkEnd compares the stored histories with the operations after all have ended.
func (w *world) checkEnd() {
	w.checkDatabase()
	for _, op := range w.operations {
		m := &op.model
		kinds := map[engine.Kind]int{}
		cursor := int64(0)
		last := engine.Kind("")
		for i := range op.history {
			l := &op.history[i]
			if l.Cursor <= cursor {
				w.violate("the history of operation %d has cursor %d after %d", op.n, l.Cursor, cursor)
			}
			cursor = l.Cursor
			kinds[l.Kind]++
			last = l.Kind
		}
		ends := kinds[engine.KindSucceeded] + kinds[engine.KindFailed] + kinds[engine.KindCancelled]
		switch {
		case kinds[engine.KindStarted] != m.started || kinds[engine.KindRetried] != m.retried || ends != m.ends:
			w.violate("the history of operation %d has %v, want %d starts, %d retries, %d ends", op.n, kinds, m.started, m.retried, m.ends)
		case ends != 1+m.retried:
			w.violate("operation %d has ended %d times and was retried %d times", op.n, ends, m.retried)
		case last != map[event.OperationState]engine.Kind{
			event.Succeeded: engine.KindSucceeded, event.Failed: engine.KindFailed, event.Cancelled: engine.KindCancelled,
		}[op.row.Status]:
			w.violate("operation %d is %s, and the last line of its history is %q", op.n, op.row.Status, last)
		}
		w.checkFolded(op)
		w.checkFacts(op)
	}
}

// checkFacts checks that the facts derived from the history are the decided ones. The only exception is a cancelled operation: its last stage
// may be derived as finished, because the history does not show whether the cancellation came before or after its end.
func (w *world) checkFacts(op *operation) {
	for i := range op.facts {
		f := &op.facts[i]
		if !op.excused && !op.published[factID(f)] {
			w.violate("the fact %s of cursor %d of operation %d was never published", f.Type, f.Cursor, op.n)
		}
	}
	decided := op.facts
	for _, f := range engine.Facts(op.p, &op.row.State, op.journal) {
		if len(decided) > 0 && decided[0].Type == f.Type && decided[0].Cursor == f.Cursor {
			w.checkFact(op, &decided[0], &f)
			decided = decided[1:]
			continue
		}
		if f.Type != event.TypeStageFinished || !op.cancelledAfter(f.Cursor) {
			w.violate("the history of operation %d has the fact %s of cursor %d, which was not decided", op.n, f.Type, f.Cursor)
		}
	}
	if len(decided) > 0 {
		w.violate("the history of operation %d does not have the fact %s of cursor %d", op.n, decided[0].Type, decided[0].Cursor)
	}
}

// checkFact checks that a derived fact has the same content as the decided one.
func (w *world) checkFact(op *operation, decided, derived *engine.Fact) {
	same := true
	switch a := decided.Payload.(type) {
	case *event.StepFinished:
		b, ok := derived.Payload.(*event.StepFinished)
		same = ok && a.Position == b.Position && a.Worker == b.Worker && a.Outcome == b.Outcome && a.Message == b.Message && a.Error == b.Error
	case *event.StageFinished:
		b, ok := derived.Payload.(*event.StageFinished)
		same = ok && a.Stage == b.Stage && a.StageAttempt == b.StageAttempt
	case *event.OperationFailed:
		b, ok := derived.Payload.(*event.OperationFailed)
		same = ok && a.Stage == b.Stage && a.Step == b.Step && a.Error == b.Error
	case *event.OperationCancelled:
		b, ok := derived.Payload.(*event.OperationCancelled)
		same = ok && a.Reason == b.Reason
	}
	if !same {
		w.violate("the fact %s of cursor %d of operation %d is %+v, but %+v was decided", derived.Type, derived.Cursor, op.n, derived.Payload, decided.Payload)
	}
}

// cancelledAfter reports whether the entry after a cursor is the cancellation of the operation, or the start of its finally stage.
func (op *operation) cancelledAfter(cursor int64) bool {
	for i := range op.journal {
		if e := &op.journal[i]; e.Cursor > cursor {
			return e.Kind == engine.KindCancelled || e.Kind == engine.KindEnding && e.Error.Reason == "err_keb_cancelled"
		}
	}
	return false
}
