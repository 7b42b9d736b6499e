package instance

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/kyma-project/keb/libs/event"
)

// Change is the effect of a fact, or of an orchestrator's answer, on an operation.
type Change struct {
	OperationID string
	Progress
	// Details is the saved data of an ended operation: a JSON object, or nil if there is none.
	Details json.RawMessage
	// Stages are the names of the stages of a started operation, in order; nil if the change does not tell them.
	Stages []string
}

// Merge applies a later Change of the same operation to c. The higher cursor takes precedence. With equal cursors, a final state
// does, else the later change. The result contains the steps of both that were not completed.
func (c *Change) Merge(later Change) {
	names := union(c.NotCompleted, later.NotCompleted)
	stages := c.Stages
	if len(later.Stages) > 0 {
		stages = later.Stages
	}
	if later.Cursor > c.Cursor || (later.Cursor == c.Cursor && !c.State.Final()) {
		*c = later
	}
	c.NotCompleted, c.Stages = names, stages
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, name := range b {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// Started returns the change of an OperationStarted fact.
func Started(f event.OperationStarted) Change {
	return Change{
		OperationID: f.OperationID, Stages: f.Stages,
		Progress: Progress{State: event.InProgress, Cursor: f.Cursor, Position: position(f.Next)},
	}
}

// StepFinished returns the change of a StepFinished fact. It contains the step's message only if the step delays the operation.
func StepFinished(f event.StepFinished) Change {
	c := Change{OperationID: f.OperationID, Progress: Progress{State: event.InProgress, Cursor: f.Cursor, Position: position(f.Next)}}
	switch f.Outcome {
	case event.OutcomeRetry, event.OutcomeFailed, event.OutcomeStageLost, event.OutcomeNoAnswer:
		c.Message, c.Error = Public(f.Message), public(f.Error)
	case event.OutcomeNotCompleted:
		c.Message, c.Error = Public(f.Message), public(f.Error)
		c.NotCompleted = []string{f.Step}
	}
	return c
}

// Succeeded returns the change of an OperationSucceeded fact.
func Succeeded(f event.OperationSucceeded) Change {
	return Change{
		OperationID: f.OperationID, Details: object(f.Details),
		Progress: Progress{State: event.Succeeded, Cursor: f.Cursor, NotCompleted: f.NotCompleted},
	}
}

// Failed returns the change of an OperationFailed fact.
func Failed(f event.OperationFailed) Change {
	return Change{OperationID: f.OperationID, Details: object(f.Details), Progress: Progress{
		State: event.Failed, Cursor: f.Cursor, Position: event.Position{Stage: f.Stage, Step: f.Step}, Error: public(&f.Error),
	}}
}

// Cancelled returns the change of an OperationCancelled fact.
func Cancelled(f event.OperationCancelled) Change {
	return Change{
		OperationID: f.OperationID, Details: object(f.Details),
		Progress: Progress{State: event.Cancelled, Cursor: f.Cursor, Message: Public(f.Reason)},
	}
}

// Status returns the change of an answer of the orchestrator.
func Status(s event.OperationStatus) Change {
	return Change{OperationID: s.OperationID, Details: object(s.Details), Stages: s.Stages, Progress: Progress{
		State: s.State, Cursor: s.Cursor, Position: position(s.Position), Message: Public(s.Message), Error: public(s.Error),
		NotCompleted: s.NotCompleted,
	}}
}

// public removes internal data from an error. The broker stores messages only to show them to platforms, so it does not store
// what platforms must not see.
func public(e *event.Error) *event.Error {
	if e == nil {
		return nil
	}
	return &event.Error{Component: e.Component, Reason: e.Reason, Message: Public(e.Message)}
}

// object returns details, or nil if they are not a JSON object: invalid details must not keep an operation from ending.
func object(details json.RawMessage) json.RawMessage {
	if trimmed := bytes.TrimSpace(details); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil
	}
	return details
}

func position(p *event.Position) event.Position {
	if p == nil {
		return event.Position{}
	}
	return *p
}
