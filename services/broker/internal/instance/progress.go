package instance

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/kyma-project/keb/libs/event"
)

// Change is what one fact, or one answer of the orchestrator, says about an operation.
type Change struct {
	OperationID string
	Progress
	// Details is the saved data of an operation that has ended: a JSON object, or nil when it has none.
	Details json.RawMessage
}

// Merge folds a later Change of the same operation into c. Of two cursors the higher counts; within one, a final state
// does, and then what came last. What is not completed is never forgotten, whatever the order.
func (c *Change) Merge(later Change) {
	names := union(c.NotCompleted, later.NotCompleted)
	if later.Cursor > c.Cursor || (later.Cursor == c.Cursor && !c.State.Final()) {
		*c = later
	}
	c.NotCompleted = names
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

// Started is the change by an OperationStarted.
func Started(f event.OperationStarted) Change {
	return Change{OperationID: f.OperationID, Progress: Progress{State: event.InProgress, Cursor: f.Cursor, Position: position(f.Next)}}
}

// StepFinished is the change by an event.StepFinished. What a step said is kept only while the operation is held up by it.
func StepFinished(f event.StepFinished) Change {
	c := Change{OperationID: f.OperationID, Progress: Progress{State: event.InProgress, Cursor: f.Cursor, Position: position(f.Next)}}
	switch f.Outcome {
	case event.OutcomeRetry, event.OutcomeFailed, event.OutcomeStageLost:
		c.Message, c.Error = Public(f.Message), public(f.Error)
	case event.OutcomeNotCompleted:
		c.Message, c.Error = Public(f.Message), public(f.Error)
		c.NotCompleted = []string{f.Step}
	}
	return c
}

// Succeeded is the change by an OperationSucceeded.
func Succeeded(f event.OperationSucceeded) Change {
	return Change{
		OperationID: f.OperationID, Details: object(f.Details),
		Progress: Progress{State: event.Succeeded, Cursor: f.Cursor, NotCompleted: f.NotCompleted},
	}
}

// Failed is the change by an OperationFailed.
func Failed(f event.OperationFailed) Change {
	return Change{OperationID: f.OperationID, Details: object(f.Details), Progress: Progress{
		State: event.Failed, Cursor: f.Cursor, Position: event.Position{Stage: f.Stage, Step: f.Step}, Error: public(&f.Error),
	}}
}

// Cancelled is the change by an OperationCancelled.
func Cancelled(f event.OperationCancelled) Change {
	return Change{
		OperationID: f.OperationID, Details: object(f.Details),
		Progress: Progress{State: event.Cancelled, Cursor: f.Cursor, Message: Public(f.Reason)},
	}
}

// Status is the change by an answer of the orchestrator.
func Status(s event.OperationStatus) Change {
	return Change{OperationID: s.OperationID, Details: object(s.Details), Progress: Progress{
		State: s.State, Cursor: s.Cursor, Position: position(s.Position), Message: Public(s.Message), Error: public(s.Error),
		NotCompleted: s.NotCompleted,
	}}
}

// public is an error without what is internal. The broker keeps texts only to show them to platforms, so it does not store
// what they must not see.
func public(e *event.Error) *event.Error {
	if e == nil {
		return nil
	}
	return &event.Error{Component: e.Component, Reason: e.Reason, Message: Public(e.Message)}
}

// object is details, or nil when they are no JSON object: an operation that has ended has ended whatever it saved.
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
