package engine

import (
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// inFinally reports whether the finally stage runs or is over.
func (m *machine) inFinally() bool {
	f := m.p.Finally()
	return m.s.Status == event.InProgress && f >= 0 && m.s.Stage >= f
}

// conclude ends the operation, after its finally stage if there is one.
func (m *machine) conclude(status event.OperationState, reason event.Error) {
	if status == event.Cancelled {
		m.s.Cause = m.cause()
	}
	f := m.p.Finally()
	if f < 0 || m.s.Status != event.InProgress {
		m.finish(status, reason)
		return
	}
	m.s.Ending = &Ending{Status: status, Error: reason, Stage: m.s.Stage, Step: m.s.Step, StageAttempt: m.s.StageAttempt}
	m.s.DueAt = time.Time{}
	m.clearCommand()
	// The entry has its own cursor, so that a late result of the previous command is not applied to the finally stage.
	m.record(Entry{Kind: KindEnding, Stage: -1, Step: -1, Error: &reason, StartedAt: m.now, FinishedAt: m.now})
	if m.s.StageMemory || m.s.StageAttempt > 1 {
		m.out.PurgeStages = append(m.out.PurgeStages, m.p.Stages[m.s.Stage].Name)
	}
	m.s.Stage, m.s.Step, m.s.StepAttempt, m.s.FirstTriedAt = f, 0, 0, time.Time{}
	m.s.StageAttempt, m.s.StageMemory, m.s.StageStartedAt = m.nextAttempt(), false, m.now
	m.dropTries()
	m.s.Skipped, m.s.Events = nil, nil
	m.clearCondition()
	m.extendDeadlineForFinally()
	m.advance()
}

// cause returns what the operation fails at; nil if no step fails.
func (m *machine) cause() *Cause {
	step := m.p.At(m.s.Stage, m.s.ConditionStep)
	if step == nil || m.s.Error == nil || m.s.Condition != Failing && m.s.Condition != NoAnswer {
		return nil
	}
	attempts := m.s.Tries[step.Name].Attempts
	if m.s.ConditionStep == m.s.Step && m.s.StepAttempt > 0 {
		attempts = m.s.StepAttempt
	}
	return &Cause{Stage: m.s.Stage, Step: m.s.ConditionStep, Error: *m.s.Error, Since: m.s.ConditionSince, Attempts: attempts}
}

// extendDeadlineForFinally makes sure that the finally stage has at least process.MaxFinally.
func (m *machine) extendDeadlineForFinally() {
	if until := m.now.Add(process.MaxFinally); m.s.Deadline.Before(until) {
		m.s.Deadline = until
	}
}

// finishProcess ends the operation when no stage is left.
func (m *machine) finishProcess() {
	if e := m.s.Ending; e != nil {
		m.s.Stage, m.s.Step, m.s.StageAttempt = e.Stage, e.Step, e.StageAttempt
		m.s.Ending = nil
		m.finish(e.Status, e.Error)
		return
	}
	m.end(event.Succeeded)
	m.record(Entry{Kind: KindSucceeded, Stage: -1, Step: -1, StartedAt: m.now, FinishedAt: m.now})
	m.fact(event.TypeOperationSucceeded, &event.OperationSucceeded{
		Fact: m.newFact(), NotCompleted: m.s.NotCompleted, Details: m.s.Details,
	})
}

// giveUpFinally ends an operation whose finally stage cannot continue. Its remaining steps are recorded as not completed.
func (m *machine) giveUpFinally(step *process.Step, reason event.Error) {
	r := Result{StartedAt: m.now, FinishedAt: m.now, Error: &reason}
	m.s.DueAt = time.Time{}
	m.clearCommand()
	for step != nil {
		m.recordStep(r, event.OutcomeNotCompleted, nil)
		m.markNotCompleted(step)
		m.nextStep()
		_, step = m.s.current(m.p)
	}
	if m.s.StageMemory || m.s.StageAttempt > 1 {
		m.out.PurgeStages = append(m.out.PurgeStages, process.StageFinally)
	}
	stage, _ := m.s.current(m.p)
	m.keepAttempts(stage)
	m.dropTries()
	m.s.Stage, m.s.Step, m.s.StepAttempt, m.s.FirstTriedAt, m.s.StageMemory = m.s.Stage+1, 0, 0, time.Time{}, false
	m.advance()
}

func (m *machine) fail(reason event.Error) { m.conclude(event.Failed, reason) }

// finish sets the operation to failed or cancelled.
func (m *machine) finish(status event.OperationState, reason event.Error) {
	stage, step := m.s.current(m.p)
	m.end(status)
	m.s.Error = &reason
	if status == event.Cancelled {
		m.record(Entry{
			Kind: KindCancelled, Stage: -1, Step: -1, Message: reason.Message, StartedAt: m.now, FinishedAt: m.now,
		})
		m.fact(event.TypeOperationCancelled, &event.OperationCancelled{
			Fact: m.newFact(), Reason: reason.Message, Details: m.s.Details,
		})
		return
	}
	failed := event.OperationFailed{Error: reason, Details: m.s.Details}
	if step != nil {
		failed.Stage, failed.Step = stage.Name, step.Name
	}
	m.record(Entry{Kind: KindFailed, Stage: m.s.Stage, Step: m.s.Step, Error: &reason, StartedAt: m.now, FinishedAt: m.now})
	failed.Fact = m.newFact()
	m.fact(event.TypeOperationFailed, &failed)
}

// end sets a final status. The position stays unchanged for a retry by an operator.
func (m *machine) end(status event.OperationState) {
	m.s.Status = status
	m.s.FinishedAt = m.now
	m.s.DueAt = time.Time{}
	m.clearCommand()
	m.clearCondition()
	m.s.Skipped, m.s.Events = nil, nil
	m.out.Finished = true
	if m.s.StageMemory || m.s.StageAttempt > 1 {
		m.out.PurgeStages = append(m.out.PurgeStages, "")
	}
}
