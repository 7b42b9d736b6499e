package engine

import (
	"slices"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// Facts derives the facts of consecutive history entries of an operation, in the order of the transitions; s is the state after
// them. The facts have the same types, cursors and ids as those of Apply, and the same content with these exceptions:
//
//   - a step's fact has the time at which its worker finished it;
//   - only the newest fact of a step has the time of the next try, and the event that the step waits for;
//   - a folded entry has one fact, which belongs to its last try;
//   - the facts of an operation that ended and was then retried by an operator have its current details;
//   - the last stage of a cancelled operation counts as finished if all its steps have ended.
func Facts(p *process.Process, s *State, history []Entry) []Fact {
	d := deriver{p: p, s: s, history: history}
	for i := range history {
		d.entry(i)
	}
	return d.facts
}

// deriver is the working state of one call of Facts.
type deriver struct {
	p       *process.Process
	s       *State
	history []Entry
	facts   []Fact
}

func (d *deriver) entry(i int) {
	e := &d.history[i]
	base := event.Fact{
		OperationID: d.s.Operation.ID, OperationType: d.s.Operation.Type, InstanceID: d.s.Operation.InstanceID,
		Cursor: e.Cursor, OccurredAt: e.FinishedAt,
	}
	switch e.Kind {
	case KindStarted:
		d.add(event.TypeOperationStarted, e, &event.OperationStarted{Fact: base, Next: d.next(i), Stages: Stages(d.p)})
	case KindStep:
		d.step(i, base)
	case KindSucceeded:
		d.add(event.TypeOperationSucceeded, e, &event.OperationSucceeded{Fact: base, NotCompleted: d.s.NotCompleted, Details: d.s.Details})
	case KindFailed:
		failed := event.OperationFailed{Fact: base, Details: d.s.Details}
		if e.Error != nil {
			failed.Error = *e.Error
		}
		if stage, step := d.at(e); step != nil {
			failed.Stage, failed.Step = stage.Name, step.Name
		}
		d.add(event.TypeOperationFailed, e, &failed)
	case KindCancelled:
		d.add(event.TypeOperationCancelled, e, &event.OperationCancelled{Fact: base, Reason: e.Message, Details: d.s.Details})
	default: // the other kinds have no fact
	}
}

func (d *deriver) add(t event.Type, e *Entry, payload any) {
	d.facts = append(d.facts, Fact{Type: t, Cursor: e.Cursor, OccurredAt: e.FinishedAt, Payload: payload})
}

// at returns the stage and step of an entry; nil if it refers to none.
func (d *deriver) at(e *Entry) (*process.Stage, *process.Step) {
	at := State{Stage: e.Stage, Step: e.Step}
	return at.current(d.p)
}

func (d *deriver) step(i int, base event.Fact) {
	e := &d.history[i]
	stage, step := d.at(e)
	if step == nil {
		return
	}
	finished := event.StepFinished{
		Fact: base, Position: position(stage, step, e), Worker: event.Worker{Name: step.Worker, Version: e.WorkerVersion},
		Outcome: e.Outcome, Message: e.Message, Error: e.Error, StartedAt: e.StartedAt, FinishedAt: e.FinishedAt, Next: d.next(i),
	}
	if e.Folded != nil {
		finished.Tries, finished.FirstStartedAt = e.Folded.Tries, &e.Folded.StartedAt
	}
	if e.Cursor == d.s.Cursor && d.s.Waiting() {
		at := d.s.DueAt
		finished.RetryAt, finished.Event = &at, awaitedEvent(d.s.EventKey)
	}
	d.add(event.TypeStepFinished, e, &finished)
	if d.finishesStage(i, stage) {
		d.add(event.TypeStageFinished, e, &event.StageFinished{
			Fact: event.Fact{
				OperationID: base.OperationID, OperationType: base.OperationType, InstanceID: base.InstanceID, Cursor: base.Cursor,
				OccurredAt: base.OccurredAt,
			},
			Stage: stage.Name, StageAttempt: e.StageAttempt,
		})
	}
}

// Stages returns the names of the stages of a process, in order, without the finally stage.
func Stages(p *process.Process) []string {
	names := make([]string, 0, len(p.Stages))
	for i := range p.Stages {
		if !p.Stages[i].Finally {
			names = append(names, p.Stages[i].Name)
		}
	}
	return names
}

func position(stage *process.Stage, step *process.Step, e *Entry) event.Position {
	return event.Position{Stage: stage.Name, Step: step.Name, StageAttempt: e.StageAttempt, StepAttempt: e.StepAttempt}
}

// next returns the position of the operation after an entry: the step of the next entry, or the current position.
func (d *deriver) next(i int) *event.Position {
	for j := i + 1; j < len(d.history); j++ {
		e := &d.history[j]
		stage, step := d.at(e)
		switch {
		case e.Kind == KindEnding || e.Kind == KindEventReceived:
			continue
		case e.Kind != KindStep || step == nil:
			return nil
		case e.StepAttempt > 0: // otherwise the step was skipped in the same transition
			at := position(stage, step, e)
			return &at
		}
	}
	return d.s.Position(d.p)
}

// finishesStage reports whether the entry of a step is the last one of its stage.
func (d *deriver) finishesStage(i int, stage *process.Stage) bool {
	e := &d.history[i]
	passed := []event.Outcome{event.OutcomeSucceeded, event.OutcomeSkipped, event.OutcomeNotCompleted}
	if e.Step != len(stage.Steps)-1 || !slices.Contains(passed, e.Outcome) {
		return false
	}
	// A finally stage is abandoned when its time is over or its command cannot be sent.
	return !stage.Finally || e.Outcome != event.OutcomeNotCompleted || e.Error == nil || e.Error.Component != component ||
		e.Error.Reason != reasonTimeout && e.Error.Reason != reasonTooLarge
}

// MaxEntries returns the greatest number of history entries that one transition of a process can have.
func MaxEntries(p *process.Process) int {
	entries := 0
	for i := range p.Stages {
		entries += len(p.Stages[i].Steps)
	}
	return entries + extraEntries
}

// extraEntries counts the entries of a transition besides those of skipped steps: the start, the ending and the end of the operation,
// and the step that the event belongs to.
const extraEntries = 4
