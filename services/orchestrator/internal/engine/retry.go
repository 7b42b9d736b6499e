package engine

import (
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// retryStep makes the operation wait for a retry, unless the budget of the step is spent or the operation was cancelled.
func (m *machine) retryStep(r Result, step *process.Step) {
	b := m.budgetOf(&r, step, m.now)
	failures := m.countFailure(step, r.Error != nil)
	after := r.RetryAfter
	if after <= 0 {
		after = b.every
		if r.Error != nil {
			after = m.backOff(step, failures)
		}
	}
	at := m.now.Add(after)
	if b.timeout > 0 {
		if b.spent(m.now) {
			m.endRetries(r, step, b)
			return
		}
		at = earlier(at, b.since.Add(b.timeout)) // the last try is at the end of the budget
	}
	at = earlier(at, m.s.Deadline)
	m.recordStep(r, event.OutcomeRetry, &at)
	switch {
	case r.Error != nil:
		m.setCondition(Failing, m.now)
	case r.EventKey != "":
		m.setCondition(EventAwaited, m.now)
	default:
		m.setCondition(Polling, m.now)
	}
	if m.cancelIfRequested() {
		return
	}
	m.s.DueAt = at
	if m.s.EventKey = r.EventKey; r.EventKey != "" {
		m.dropEvent() // the step is done with it and waits for the next one
	}
}

// setCondition sets the condition of the current step.
func (m *machine) setCondition(c Condition, since time.Time) {
	m.s.ConditionStep, m.s.EventKey = m.s.Step, ""
	if m.s.Condition != c {
		m.s.Condition, m.s.ConditionSince = c, since
	}
}

func (m *machine) clearCondition() {
	m.s.Condition, m.s.ConditionStep, m.s.ConditionSince, m.s.EventKey = "", 0, time.Time{}, ""
}

// endRetries ends the retries of a step whose budget is spent. The error names the last error of the external system.
func (m *machine) endRetries(r Result, step *process.Step, b budget) {
	last := r.Message
	if r.Error != nil {
		last = r.Error.Message
	}
	timeout := event.Error{Component: step.Worker, Reason: reasonTimeout}
	if r.Error != nil && r.Error.Component != "" {
		timeout.Component = r.Error.Component
	}
	if r.Error != nil && (r.Error.Reason == reasonNoAnswer || r.Error.Reason == reasonNoWorker) {
		timeout.Reason = r.Error.Reason
	}
	verb := "was retried"
	if b.waiting {
		verb = "has waited"
	}
	timeout.Message = fmt.Sprintf("%s %s for %s without success", step.Name, verb, b.timeout)
	if last != "" {
		timeout.Message += ": " + last
	}
	if e := b.earlier; e != nil {
		timeout.Message += fmt.Sprintf("; its last error was of %s: %s", e.Component, e.Message)
	}
	r.Error = &timeout
	m.s.Error = &timeout
	if step.OnTimeout != process.Skip {
		m.recordStep(r, event.OutcomeFailed, nil)
		m.fail(timeout)
		return
	}
	m.skipNotCompleted(r)
	if m.cancelIfRequested() {
		return
	}
	m.advance()
}

// stageLost repeats the stage from its first step, because the content of the stage memory is gone. The loss does not count
// against the budget of the step; the deadline of the operation bounds the repetitions.
func (m *machine) stageLost(r Result, stage *process.Stage) {
	if r.Message == "" {
		m.s.Message = "the stage memory was lost; the stage " + stage.Name + " starts again"
		r.Message = m.s.Message
	}
	at := earlier(m.now.Add(stageLostPause), m.s.Deadline)
	m.recordStep(r, event.OutcomeStageLost, &at)
	if m.cancelIfRequested() {
		return
	}
	m.setCondition(Failing, m.now)
	m.restartStage()
	m.s.DueAt = at
}

// restartStage moves back to the first step of the current stage and keeps the budget of the current step.
func (m *machine) restartStage() {
	_, step := m.s.current(m.p)
	m.keepTry(step.Name)
	m.s.Step = 0
	m.s.StepAttempt = 0
	m.s.FirstTriedAt = time.Time{}
	m.s.StageAttempt++
	m.s.StageMemory = false
}
