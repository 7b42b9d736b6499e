package engine

import (
	"slices"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// Facts are those that belong to lines of the history of an operation, in the order in which they were decided; s is its state after
// them. The lines must follow each other. Facts have the same types, cursors and so the same ids as those of Apply, and say the same, with these
// exceptions: a step's fact has the time at which its worker ended it, and only the newest one tells when the step is tried again; the facts of
// an operation that has ended and was retried by an operator since have its details of now; and the last stage of an operation that was
// cancelled counts as finished when all its steps have passed.
func Facts(p *process.Process, s *State, history []Entry) []Fact {
	d := deriver{p: p, s: s, history: history}
	for i := range history {
		d.line(i)
	}
	return d.facts
}

// deriver is one call of Facts.
type deriver struct {
	p       *process.Process
	s       *State
	history []Entry
	facts   []Fact
}

func (d *deriver) line(i int) {
	e := &d.history[i]
	base := event.Fact{
		OperationID: d.s.Operation.ID, OperationType: d.s.Operation.Type, InstanceID: d.s.Operation.InstanceID,
		Cursor: e.Cursor, OccurredAt: e.FinishedAt,
	}
	switch e.Kind {
	case KindStarted:
		d.add(event.TypeOperationStarted, e, &event.OperationStarted{Fact: base, Next: d.next(i)})
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
	default: // no fact tells of the others
	}
}

func (d *deriver) add(t event.Type, e *Entry, payload any) {
	d.facts = append(d.facts, Fact{Type: t, Cursor: e.Cursor, OccurredAt: e.FinishedAt, Payload: payload})
}

// at is the stage and step of a line; nil when the line is about none.
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
	if e.Cursor == d.s.Cursor && d.s.Waiting() {
		at := d.s.DueAt
		finished.RetryAt = &at
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

func position(stage *process.Stage, step *process.Step, e *Entry) event.Position {
	return event.Position{Stage: stage.Name, Step: step.Name, StageAttempt: e.StageAttempt, StepAttempt: e.StepAttempt}
}

// next is where the operation stood after a line: at the step of the line that follows, or where it stands now.
func (d *deriver) next(i int) *event.Position {
	for j := i + 1; j < len(d.history); j++ {
		e := &d.history[j]
		stage, step := d.at(e)
		switch {
		case e.Kind == KindEnding:
			continue
		case e.Kind != KindStep || step == nil:
			return nil
		case e.StepAttempt > 0: // otherwise it was passed in the same transition
			at := position(stage, step, e)
			return &at
		}
	}
	return d.s.Position(d.p)
}

// finishesStage reports whether the line of a step is the last one of its stage.
func (d *deriver) finishesStage(i int, stage *process.Stage) bool {
	e := &d.history[i]
	passed := []event.Outcome{event.OutcomeSucceeded, event.OutcomeSkipped, event.OutcomeNotCompleted}
	if e.Step != len(stage.Steps)-1 || !slices.Contains(passed, e.Outcome) {
		return false
	}
	// A finally stage whose time is over, or whose command cannot be sent, is given up.
	return !stage.Finally || e.Outcome != event.OutcomeNotCompleted || e.Error == nil || e.Error.Component != component ||
		e.Error.Reason != reasonTimeout && e.Error.Reason != reasonTooLarge
}

// FactLines is how many lines of the history one transition of a process has at most.
func FactLines(p *process.Process) int {
	lines := 0
	for i := range p.Stages {
		lines += len(p.Stages[i].Steps)
	}
	return lines + transitionLines
}

// transitionLines are the lines of a transition besides those of the steps: its start, its ending and its end, and one for the step that it is
// about.
const transitionLines = 4
