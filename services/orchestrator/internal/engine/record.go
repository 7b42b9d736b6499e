package engine

import (
	"math"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// complete sets the fields that are known only at the end of a transition.
func (m *machine) complete() {
	next := m.s.Position(m.p)
	for _, f := range m.steps {
		f.Next = next
	}
	for _, f := range m.out.Facts {
		if started, ok := f.Payload.(*event.OperationStarted); ok {
			started.Next, started.Stages = next, Stages(m.p)
		}
	}
}

// bump counts a transition that has no history entry.
func (m *machine) bump() {
	m.s.Cursor++
	m.out.Changed = true
}

func (m *machine) record(e Entry) {
	m.bump()
	e.Cursor = m.s.Cursor
	e.Saved, m.saved = m.saved, nil
	m.out.History = append(m.out.History, e)
}

// minQueued is the shortest wait of a command that is recorded. Most commands wait for less, and need no room in the history.
const minQueued = 50 * time.Millisecond

// queued returns how long the command of a result waited for its worker. The clocks of worker and orchestrator may differ.
func (m *machine) queued(r *Result) time.Duration {
	if r.Worker.Name == "" { // not from a worker
		return 0
	}
	waited := min(since(m.s.SentAt, r.StartedAt), math.MaxInt32*time.Millisecond).Truncate(time.Millisecond)
	if waited < minQueued {
		return 0
	}
	return waited
}

// recordStep records one execution of the current step, in the history and as a fact.
func (m *machine) recordStep(r Result, outcome event.Outcome, retryAt *time.Time) {
	stage, step := m.s.current(m.p)
	late := 0
	if m.s.removesLateEffects() {
		late = len(r.Removed)
	}
	m.record(Entry{
		Kind: KindStep, Stage: m.s.Stage, Step: m.s.Step, StageAttempt: m.s.StageAttempt, StepAttempt: m.s.StepAttempt,
		Outcome: outcome, WorkerVersion: r.Worker.Version, Message: r.Message, Error: r.Error,
		StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, RetryAfter: m.retryAfter(retryAt), Queued: m.queued(&r),
		Took: since(m.s.FirstTriedAt, m.now), LateEffects: late,
	})
	finished := &event.StepFinished{
		Fact: m.newFact(),
		Position: event.Position{
			Stage: stage.Name, Step: step.Name, StageAttempt: m.s.StageAttempt, StepAttempt: m.s.StepAttempt,
		},
		Worker: event.Worker{Name: step.Worker, Version: r.Worker.Version}, Outcome: outcome, Message: r.Message, Error: r.Error,
		RetryAt: retryAt, Event: awaitedEvent(r.EventKey), StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
	}
	m.steps = append(m.steps, finished)
	m.fact(event.TypeStepFinished, finished)
}

// retryAfter returns the time to the next try, in whole milliseconds.
func (m *machine) retryAfter(at *time.Time) time.Duration {
	if at == nil {
		return 0
	}
	return min(since(m.now, *at), math.MaxInt32*time.Millisecond).Truncate(time.Millisecond)
}

func (m *machine) newFact() event.Fact {
	return event.Fact{
		OperationID: m.s.Operation.ID, OperationType: m.s.Operation.Type, InstanceID: m.s.Operation.InstanceID,
		Cursor: m.s.Cursor, OccurredAt: m.now,
	}
}

func (m *machine) fact(t event.Type, payload any) {
	m.out.Facts = append(m.out.Facts, Fact{Type: t, Cursor: m.s.Cursor, OccurredAt: m.now, Payload: payload})
}

// since returns the time from a to b. It is zero if a is not set, or later than b because another orchestrator's clock set it.
func since(a, b time.Time) time.Duration {
	if a.IsZero() {
		return 0
	}
	return max(b.Sub(a), 0)
}
