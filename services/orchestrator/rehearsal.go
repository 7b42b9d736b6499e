package orchestrator

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// Rehearsal runs one operation by its process definition with the engine alone: without a bus and a database, and with a clock
// that its user moves. It is for tests of steps and of process definitions. It must not be used concurrently.
type Rehearsal struct {
	process *process.Process
	state   engine.State
	facts   []event.StepFinished
}

// NewRehearsal prepares an operation that has not started.
func NewRehearsal(p *process.Process, op event.Operation) *Rehearsal {
	return &Rehearsal{process: p, state: engine.New(op)}
}

// Start takes the operation in progress, with what earlier operations on the instance have left: their saved data, and the
// steps that an earlier deprovisioning has completed.
func (r *Rehearsal) Start(details json.RawMessage, completed []string, now time.Time) error {
	return r.apply(engine.Start{Details: details, Completed: completed}, now)
}

// Command is the command that is out and the worker that it is for; ok is false when none is.
func (r *Rehearsal) Command() (worker string, command event.StepExecute, ok bool) {
	if !r.state.InFlight() {
		return "", command, false
	}
	worker, command = engine.Command(r.process, &r.state)
	return worker, command, true
}

// Answer folds the result of a worker, as it comes over the bus.
func (r *Rehearsal) Answer(result cloudevents.Event, now time.Time) error {
	_, decoded, err := dispatch.DecodeResult(result)
	if err != nil {
		return fmt.Errorf("read the result: %w", err)
	}
	return r.apply(decoded, now)
}

// Due is when the operation is taken up again, or its command is sent again; zero when it has ended.
func (r *Rehearsal) Due() time.Time {
	if r.state.InFlight() {
		return r.state.ExecuteBefore
	}
	return r.state.DueAt
}

// Wake takes the operation up again; now must not be before Due.
func (r *Rehearsal) Wake(now time.Time) error { return r.apply(engine.Due{WorkerAlive: true}, now) }

// Cancel asks to end the operation.
func (r *Rehearsal) Cancel(reason string, now time.Time) error {
	return r.apply(engine.Cancel{Reason: reason}, now)
}

// Status is where the operation stands, with its saved data.
func (r *Rehearsal) Status() event.OperationStatus {
	s := &r.state
	return event.OperationStatus{
		OperationID: s.Operation.ID, State: s.Status, Cursor: s.Cursor, Position: s.Position(r.process),
		Message: s.Message, Error: s.Error, NotCompleted: slices.Clone(s.NotCompleted), Details: s.Details,
	}
}

// Completed names the steps that a later deprovisioning need not run.
func (r *Rehearsal) Completed() []string { return r.state.CompletedSteps(r.process) }

// Steps are the facts of all executions so far, in order.
func (r *Rehearsal) Steps() []event.StepFinished { return r.facts }

func (r *Rehearsal) apply(e engine.Event, now time.Time) error {
	next, effects, err := engine.Apply(r.process, r.state, e, now)
	if err != nil {
		return err
	}
	r.state = next
	for _, f := range effects.Facts {
		if step, ok := f.Payload.(*event.StepFinished); ok {
			r.facts = append(r.facts, *step)
		}
	}
	return nil
}
