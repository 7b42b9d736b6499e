package engine

import (
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// inFinally tells that the finally stage runs, or is over.
func (m *machine) inFinally() bool {
	f := m.p.Finally()
	return m.s.Status == event.InProgress && f >= 0 && m.s.Stage >= f
}

// conclude ends the operation, after its finally stage if there is one.
func (m *machine) conclude(status event.OperationState, reason event.Error) {
	f := m.p.Finally()
	if f < 0 || m.s.Status != event.InProgress {
		m.finish(status, reason)
		return
	}
	m.s.Ending = &Ending{Status: status, Error: reason, Stage: m.s.Stage, Step: m.s.Step, StageAttempt: m.s.StageAttempt}
	m.s.DueAt, m.s.ExecuteBefore, m.s.Dispatch = time.Time{}, time.Time{}, 0
	// It has a cursor of its own: a result of the command that was out must not be taken for one of the finally stage.
	m.record(Entry{Kind: KindEnding, Stage: -1, Step: -1, Error: &reason, StartedAt: m.now, FinishedAt: m.now})
	if m.s.StageMemory || m.s.StageAttempt > 1 {
		m.out.PurgeStages = append(m.out.PurgeStages, m.p.Stages[m.s.Stage].Name)
	}
	// The attempt stays, so that the finally stage of an operation that is retried does not meet its own earlier memory.
	m.s.Stage, m.s.Step, m.s.StepAttempt, m.s.FirstTriedAt = f, 0, 0, time.Time{}
	m.s.StageMemory, m.s.Tries, m.s.StageStartedAt = false, nil, m.now
	m.grantFinally()
	m.advance()
}

// grantFinally gives the finally stage its time, whatever the operation has used up.
func (m *machine) grantFinally() {
	if until := m.now.Add(process.MaxFinally); m.s.Deadline.Before(until) {
		m.s.Deadline = until
	}
}

// concluded ends the operation when no stage is left.
func (m *machine) concluded() {
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

// giveUpFinally ends an operation whose finally stage has used up its time. Its steps that are left are not completed.
func (m *machine) giveUpFinally(step *process.Step) {
	r := Result{StartedAt: m.now, FinishedAt: m.now, Error: &event.Error{
		Component: component, Reason: reasonTimeout, Message: fmt.Sprintf("the stage %s has used up its time", process.StageFinally),
	}}
	m.s.DueAt, m.s.ExecuteBefore, m.s.Dispatch = time.Time{}, time.Time{}, 0
	for step != nil {
		m.recordStep(r, event.OutcomeNotCompleted, nil)
		m.notCompleted(step)
		m.nextStep()
		_, step = m.s.current(m.p)
	}
	m.s.Stage, m.s.Step, m.s.StepAttempt, m.s.FirstTriedAt = m.s.Stage+1, 0, 0, time.Time{}
	m.advance()
}
