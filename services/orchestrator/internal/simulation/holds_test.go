package simulation_test

import (
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// pause is a hold. Empty fields match everything.
type pause struct {
	id, instance, step, worker string
	kind                       event.OperationType
}

func (p *pause) matches(op *event.Operation, worker, step string) bool {
	return (p.instance == "" || p.instance == op.InstanceID) && (p.kind == "" || p.kind == op.Type) &&
		(p.step == "" || p.step == step) && (p.worker == "" || p.worker == worker)
}

// heldBy returns the id of the first of the holds that matches.
func heldBy(holds []pause, op *event.Operation, worker, step string) string {
	for i := range holds {
		if holds[i].matches(op, worker, step) {
			return holds[i].id
		}
	}
	return ""
}

// Match implements dispatch.Holds.
func (o *orchestrator) Match(op *event.Operation, next *process.Step) string {
	worker, step := "", ""
	if next != nil {
		worker, step = next.Worker, next.Name
	}
	if step == "" && o.w.bug == bugStartsInHold || step != "" && o.w.bug == bugSendsInHold {
		return ""
	}
	id := heldBy(o.known, op, worker, step)
	if t := o.w.current; id != "" && t != nil {
		t.withheld[numberOf(op.ID)] = true
	}
	return id
}

// Active implements dispatch.Holds.
func (o *orchestrator) Active() (ids []string) {
	for i := range o.known {
		ids = append(ids, o.known[i].id)
	}
	return ids
}

// pauses creates or releases a hold, or an orchestrator reads the holds.
func (w *world) pauses(c choice) {
	switch {
	case c.a%4 < 2:
		w.orchestrators[c.b%orchestrators].known = w.holds
	case c.a%4 == 2 || len(w.holds) == 0:
		if len(w.holds) == 3 {
			return
		}
		w.seq++
		p := pause{id: operationID(1000 + w.seq)}
		t := event.OperationTypes()[c.b%5]
		stage := w.set[t].Stages[int(c.c)%len(w.set[t].Stages)]
		step := stage.Steps[int(c.d)%len(stage.Steps)]
		switch c.b / 8 % 4 {
		case 0:
			p.instance = instanceID(int(c.c % instances))
		case 1:
			p.kind = t
		case 2:
			p.kind, p.step = t, step.Name
		default:
			p.worker = step.Worker
		}
		w.holds = append(slices.Clone(w.holds), p)
		w.count(countHolds)
		w.trace("hold %+v is created", p)
	default:
		n := int(c.b) % len(w.holds)
		w.trace("hold %s is released", w.holds[n].id)
		w.holds = slices.Delete(slices.Clone(w.holds), n, n+1)
	}
}

// checkHeld checks that a command is not in the scope of a hold that its orchestrator has read.
func (w *world) checkHeld(m *bus.Message, known []pause) {
	command, err := bus.Data[event.StepExecute](m.Event)
	if err != nil || len(known) == 0 {
		return
	}
	if id := heldBy(known, &command.Operation, strings.Split(m.Subject, ".")[2], command.Step); id != "" {
		w.violate("the command for %s of operation %s is sent inside a hold", command.Step, command.Operation.ID)
	}
}

// held moves the limits of the model by the time for which an operation was held.
func (m *model) held(s *engine.State, now time.Time) {
	if s.HoldID == "" || s.Status != event.InProgress {
		return
	}
	by := max(0, now.Sub(m.heldSince))
	m.deadline = m.deadline.Add(by)
	m.moveTries(by)
}

// moveTries moves the budgets of all steps.
func (m *model) moveTries(by time.Duration) {
	for name, t := range m.tries {
		for _, at := range []*time.Time{&t.first, &t.waiting, &t.failing} {
			if !at.IsZero() {
				*at = at.Add(by)
			}
		}
		m.tries[name] = t
	}
}

// checkHold checks the transitions into and out of a hold.
func (w *world) checkHold(op *operation, before *engine.State, e engine.Event, next *engine.State, now time.Time) {
	m := &op.model
	switch e.(type) {
	case engine.Hold:
		if !before.Held() {
			m.heldSince = now
			w.count(countHeld)
		}
		if !next.Held() || !next.HeldSince.Equal(m.heldSince) || next.Dispatch != before.Dispatch {
			w.violate("held by %q since %s, want since %s", next.HoldID, next.HeldSince, m.heldSince)
		}
	case engine.Release:
		w.count(countReleased)
		if next.Status == event.InProgress {
			step := op.p.Stages[next.Stage].Steps[next.Step].Name
			if t := m.tries[step]; !next.FirstTriedAt.Equal(t.first) {
				w.violate("after a hold %s was first tried at %s, want %s", step, next.FirstTriedAt, t.first)
			}
		}
	default:
		if next.Held() && !before.Held() {
			w.violate("%T: the operation is held", e)
		}
	}
}
