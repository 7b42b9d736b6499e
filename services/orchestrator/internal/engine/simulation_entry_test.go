package engine_test

import (
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// before tells the model of an event that is about to be recorded.
func (m *model) before(p *process.Process, s *engine.State, e engine.Event, now time.Time) {
	switch e := e.(type) {
	case engine.Cancel:
		m.cancel = true
	case engine.Retry:
		m.cancel = false
		m.startStage()
		m.first, m.attempts = map[string]time.Time{}, map[string]int{}
	case engine.Due:
		late := m.cancel || !now.Before(s.StartedAt.Add(p.Timeout))
		switch {
		case late:
		case m.restart && s.Waiting():
			m.startStage()
		case s.InFlight() && !e.WorkerAlive && s.StepAttempt == 1:
			// Waiting for a worker uses up no budget.
			m.first[p.Stages[s.Stage].Steps[s.Step].Name] = now
		}
	}
}

// startStage goes back to the first step of the stage, with an empty memory.
func (m *model) startStage() { m.step, m.restart, m.memory = 0, false, false }

// rollOver goes on to the next stage when the current one is finished.
func (m *model) rollOver(p *process.Process) {
	for m.stage < len(p.Stages) && m.step == len(p.Stages[m.stage].Steps) {
		m.stage++
		m.startStage()
		m.first, m.attempts = map[string]time.Time{}, map[string]int{}
	}
}

// checkEntry: steps come in the order of the process, and each is passed for a reason.
func (w *world) checkEntry(op *operation, e engine.Event, h *engine.Entry) {
	m := op.model
	switch h.Kind {
	case engine.KindSucceeded:
		m.rollOver(op.p)
		if m.stage != len(op.p.Stages) {
			w.violate("the operation has succeeded at stage %d, step %d", m.stage, m.step)
		}
		return
	case engine.KindStep:
	default:
		return
	}
	m.rollOver(op.p)
	if h.Stage != m.stage || h.Step != m.step {
		w.violate("step %d/%d is recorded, want %d/%d", h.Stage, h.Step, m.stage, m.step)
	}
	step := &op.p.Stages[h.Stage].Steps[h.Step]
	_, byOperator := e.(engine.SkipStep)
	byOperator = byOperator && e.(engine.SkipStep).Step == step.Name && h.Message == "skipped by me"
	switch h.Outcome {
	case event.OutcomeSucceeded:
		m.pass(step.Name, true)
	case event.OutcomeSkipped:
		m.pass(step.Name, !byOperator)
	case event.OutcomeNotCompleted:
		w.checkNotCompleted(e, step)
		m.pass(step.Name, false)
	case event.OutcomeRetry:
		m.restart = step.Retry.Scope != process.ScopeStep
	case event.OutcomeStageLost:
		m.startStage()
	}
	if byOperator {
		m.restart = false
	}
	if slices.Contains(op.state.Completed, step.Name) && h.Outcome != event.OutcomeSkipped {
		w.violate("%s runs although an earlier operation has completed it", step.Name)
	}
}

func (m *model) pass(step string, completed bool) {
	m.step++
	m.restart = false
	delete(m.first, step)
	delete(m.attempts, step)
	if completed {
		delete(m.notCompleted, step)
	} else {
		m.notCompleted[step] = true
	}
}

// checkNotCompleted: only a worker or the process may let a step go.
func (w *world) checkNotCompleted(e engine.Event, step *process.Step) {
	r, ok := e.(engine.Result)
	switch {
	case ok && r.Outcome == event.OutcomeNotCompleted:
	case ok && r.Outcome == event.OutcomeFailed && step.OnFailure == process.Skip:
	case ok && r.Outcome == event.OutcomeRetry && step.OnTimeout == process.Skip:
	default:
		w.violate("%s is passed over because of %+v", step.Name, e)
	}
}
