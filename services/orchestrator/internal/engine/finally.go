package engine

import (
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
	m.s.Stage, m.s.Step, m.s.StepAttempt, m.s.FirstTriedAt = f, 0, 0, time.Time{}
	m.s.StageAttempt, m.s.StageMemory, m.s.StageStartedAt = m.nextFinally(), false, m.now
	m.dropTries()
	m.grantFinally()
	m.advance()
}

// triesFinally is where the attempts of the finally stage are kept once it is over; no step can have this name.
const triesFinally = "/finally"

// nextFinally is an attempt that the finally stage has not had yet, so that it does not meet its own earlier memory.
func (m *machine) nextFinally() int { return m.s.Tries[triesFinally].Attempts + 1 }

// leaveFinally remembers the attempts of the finally stage for an operation that may be retried, and then comes to it again.
func (m *machine) leaveFinally() {
	if m.s.Ending != nil {
		m.s.Tries = map[string]Try{triesFinally: {Attempts: m.s.StageAttempt}}
	}
}

// dropTries forgets the budgets of the steps.
func (m *machine) dropTries() {
	if last, ok := m.s.Tries[triesFinally]; ok {
		m.s.Tries = map[string]Try{triesFinally: last}
		return
	}
	m.s.Tries = nil
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

// giveUpFinally ends an operation whose finally stage cannot go on. Its steps that are left are not completed.
func (m *machine) giveUpFinally(step *process.Step, reason event.Error) {
	r := Result{StartedAt: m.now, FinishedAt: m.now, Error: &reason}
	m.s.DueAt, m.s.ExecuteBefore, m.s.Dispatch = time.Time{}, time.Time{}, 0
	for step != nil {
		m.recordStep(r, event.OutcomeNotCompleted, nil)
		m.notCompleted(step)
		m.nextStep()
		_, step = m.s.current(m.p)
	}
	if m.s.StageMemory || m.s.StageAttempt > 1 {
		m.out.PurgeStages = append(m.out.PurgeStages, process.StageFinally)
	}
	m.leaveFinally()
	m.s.Stage, m.s.Step, m.s.StepAttempt, m.s.FirstTriedAt, m.s.StageMemory = m.s.Stage+1, 0, 0, time.Time{}, false
	m.advance()
}
