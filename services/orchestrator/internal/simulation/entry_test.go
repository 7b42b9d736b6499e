package simulation_test

import (
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// before updates the model for an event before its history is checked.
func (m *model) before(p *process.Process, s *engine.State, e engine.Event, now time.Time) {
	switch e.(type) {
	case engine.Result, engine.Cancel, engine.SkipStep, engine.Release, engine.Hold, engine.Grant:
		if _, hold := e.(engine.Hold); !hold {
			m.held(s, now)
		}
		m.limited(s, now)
	}
	switch e := e.(type) {
	case engine.Start:
		m.deadline = now.Add(p.Timeout)
		m.started++
	case engine.Cancel:
		m.cancel = true
	case engine.Retry:
		m.cancel, m.ending, m.remembers = false, false, false
		// Whether the steps that are left out have used the stage memory is known only of the stage that failed.
		memory := m.memory || p.Finally() >= 0 || e.Stage != "" && stageOf(p, e.Stage) != s.Stage
		if e.Stage != "" {
			m.stage = stageOf(p, e.Stage)
			for i := range p.Stages[m.stage:] {
				for j := range p.Stages[m.stage+i].Steps {
					delete(m.succeeded, p.Stages[m.stage+i].Steps[j].Name)
				}
			}
		}
		m.startStage()
		if _, step, ok := p.Find(e.Step); ok && step > 0 {
			m.step, m.memory = step, memory
		}
		clear(m.tries)
		clear(m.skipped)
		m.retried++
	case engine.SkipStep:
		m.skipped[e.Step] = true
	case engine.Signal:
		if m.restart {
			m.startStage()
		}
	case engine.Due:
		late := m.cancel && !m.ending && e.LostBefore.IsZero() || !now.Before(m.deadline)
		switch {
		case late:
		case m.restart && s.Waiting():
			m.startStage()
		case s.InFlight() && !e.WorkerAlive && s.StepAttempt == 1 && p.Stages[s.Stage].Steps[s.Step].NoWorker == process.NoWorkerWait:
			// The time without a worker does not count against the budget.
			name := p.Stages[s.Stage].Steps[s.Step].Name
			t := m.tries[name]
			t.first = now
			m.tries[name] = t
		}
	}
}

func stageOf(p *process.Process, name string) int {
	return slices.IndexFunc(p.Stages, func(s process.Stage) bool { return s.Name == name })
}

// startStage moves back to the first step of the stage, with an empty memory.
func (m *model) startStage() {
	m.step, m.restart, m.memory, m.fresh, m.done = 0, false, false, true, m.done[:0]
}

// rollOver moves to the next stage if the current one is finished.
func (m *model) rollOver(p *process.Process, now time.Time) {
	for m.stage < len(p.Stages) && m.step == len(p.Stages[m.stage].Steps) {
		if !p.Stages[m.stage].Finally { // the finally stage runs at every end of the operation
			for _, step := range m.done {
				m.succeeded[step] = true
			}
		}
		m.enter(p, m.stage+1, now)
	}
}

func (m *model) enter(p *process.Process, stage int, now time.Time) {
	m.stage, m.remembers = stage, false
	m.startStage()
	clear(m.tries)
	clear(m.skipped)
	if stage == p.Finally() {
		m.ending = true
		m.stoodAt = stage
		if until := now.Add(process.MaxFinally); m.deadline.Before(until) {
			m.deadline = until
		}
	}
}

// conclude moves to the finally stage before the other stages are finished.
func (m *model) conclude(p *process.Process, now time.Time) {
	at := m.stage
	m.enter(p, p.Finally(), now)
	m.stoodAt = at
}

// runs reports whether the operation is in progress or starts with the event.
func runs(before *engine.State, e engine.Event) bool {
	_, start := e.(engine.Start)
	return start || before.Status == event.InProgress
}

// checkEnding checks that an operation fails or is cancelled after its finally stage, with the same status as without one.
func (w *world) checkEnding(op *operation, before *engine.State, e engine.Event, next *engine.State, now time.Time) {
	m, f := &op.model, op.p.Finally()
	if f < 0 || !runs(before, e) {
		return
	}
	if m.rollOver(op.p, now); next.Ending != nil && !m.ending {
		m.conclude(op.p, now)
	}
	switch {
	case before.Ending != nil && next.Status.Final() && next.Status != before.Ending.Status:
		w.violate("an operation that was to end as %s is %s", before.Ending.Status, next.Status)
	case before.Ending != nil && next.Status.Final() && next.Error != nil && next.Error.Message != before.Ending.Error.Message:
		w.violate("the reason %q has become %q", before.Ending.Error.Message, next.Error.Message)
	case before.Ending != nil && !next.Status.Final() && next.Ending == nil:
		w.violate("the ending of the operation is lost")
	}
	if !next.Status.Final() {
		return
	}
	if m.stage != len(op.p.Stages) && now.Before(m.deadline) {
		w.violate("the operation is %s at stage %d, step %d, without its finally stage", next.Status, m.stage, m.step)
	}
	if next.Status != event.Succeeded {
		m.stage, m.step = next.Stage, next.Step
		at := next.Stage
		if at < f && next.Step == len(op.p.Stages[at].Steps) {
			at++ // the last step of a stage is the end of the stage
		}
		if at != m.stoodAt {
			w.violate("the operation has ended in stage %d, and stands at %d", m.stoodAt, at)
		}
	}
}

// checkEntry checks that steps run in the order of the process, and that every skipped step has a reason.
func (w *world) checkEntry(op *operation, before *engine.State, e engine.Event, h *engine.Entry, now time.Time) {
	m := &op.model
	f := op.p.Finally()
	if f >= 0 && h.Stage == f && m.stage < f && runs(before, e) {
		if m.rollOver(op.p, now); m.stage < f {
			m.conclude(op.p, now)
		}
	}
	switch h.Kind {
	case engine.KindSucceeded:
		m.rollOver(op.p, now)
		if m.stage != len(op.p.Stages) && (!m.ending || now.Before(m.deadline)) {
			w.violate("the operation has succeeded at stage %d, step %d", m.stage, m.step)
		}
		return
	case engine.KindStep:
	default:
		return
	}
	m.rollOver(op.p, now)
	if h.Stage != m.stage || h.Step != m.step {
		w.violate("step %d/%d is recorded, want %d/%d", h.Stage, h.Step, m.stage, m.step)
	}
	step := &op.p.Stages[h.Stage].Steps[h.Step]
	byOperator := m.skipped[step.Name] && h.Message == "skipped by me"
	switch h.Outcome {
	case event.OutcomeSucceeded:
		m.done = append(m.done, step.Name)
		m.pass(step.Name, true)
	case event.OutcomeSkipped:
		m.pass(step.Name, !byOperator)
	case event.OutcomeNotCompleted:
		w.checkNotCompleted(m, e, h, step, now)
		m.step++
		m.restart = false
		m.notCompleted[step.Name] = true
	case event.OutcomeRetry:
		m.restart = step.Retry.Scope != process.ScopeStep
	case event.OutcomeStageLost:
		m.startStage()
	}
	if byOperator {
		m.restart = false
		if _, now := e.(engine.SkipStep); !now {
			w.count(countSkippedAgain)
		}
	}
	if slices.Contains(op.row.Completed, step.Name) && h.Outcome != event.OutcomeSkipped {
		w.violate("%s runs although an earlier operation has completed it", step.Name)
	}
}

func (m *model) pass(step string, completed bool) {
	m.step++
	m.restart = false
	delete(m.tries, step)
	if completed {
		delete(m.notCompleted, step)
	} else {
		m.notCompleted[step] = true
	}
}

// checkNotCompleted checks that a worker or the process definition allows a step to be not completed.
func (w *world) checkNotCompleted(m *model, e engine.Event, h *engine.Entry, step *process.Step, now time.Time) {
	r, ok := e.(engine.Result)
	_, unsendable := e.(engine.Unsendable)
	_, isDue := e.(engine.Due)
	switch {
	case m.ending && !now.Before(m.deadline):
	case m.ending && unsendable:
	case ok && r.Outcome == event.OutcomeNotCompleted:
	case ok && unreadable(&r) && step.OnFailure == process.Skip:
	case h.Error != nil && h.Error.Reason == "err_keb_condition" && step.OnFailure == process.Skip:
	case ok && r.Outcome == event.OutcomeFailed && step.OnFailure == process.Skip:
	case ok && r.Outcome == event.OutcomeRetry && step.OnTimeout == process.Skip:
	case isDue && step.OnTimeout == process.Skip: // checkUnanswered checks when
	default:
		w.violate("%s is not completed because of %+v", step.Name, e)
	}
}
