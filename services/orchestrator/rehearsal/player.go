package rehearsal

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

// Player runs one operation with the engine only, with a clock that the caller controls. It is not safe for concurrent use.
type Player struct {
	process *process.Process
	state   engine.State
	facts   []event.StepFinished
}

// New returns a Player of an operation that has not started.
func New(definition *process.Process, op event.Operation) *Player {
	return &Player{process: definition, state: engine.New(op)}
}

// Start starts the operation, with the saved data of earlier operations on the instance and the steps that an earlier
// deprovisioning has completed.
func (p *Player) Start(details json.RawMessage, completed []string, now time.Time) error {
	return p.apply(engine.Start{Details: details, Completed: completed}, now)
}

// Command returns the current command and its worker. ok is false if there is none.
func (p *Player) Command() (worker string, command event.StepExecute, ok bool) {
	if !p.state.InFlight() {
		return "", command, false
	}
	worker, command = engine.Command(p.process, &p.state)
	return worker, command, true
}

// Answer applies the result of a worker, in the form in which it is sent on the bus.
func (p *Player) Answer(result cloudevents.Event, now time.Time) error {
	_, decoded, err := dispatch.DecodeResult(result)
	if err != nil {
		return fmt.Errorf("read the result: %w", err)
	}
	return p.apply(decoded, now)
}

// Due returns when the operation runs again, or when its command is sent again; zero when it has ended.
func (p *Player) Due() time.Time {
	if p.state.InFlight() {
		return p.state.ExecuteBefore
	}
	return p.state.DueAt
}

// Wake applies the due time. now must not be before Due.
func (p *Player) Wake(now time.Time) error { return p.wake(true, now) }

func (p *Player) wake(workerAlive bool, now time.Time) error {
	return p.apply(engine.Due{WorkerAlive: workerAlive}, now)
}

// Cancel requests the end of the operation.
func (p *Player) Cancel(reason string, now time.Time) error {
	return p.apply(engine.Cancel{Reason: reason}, now)
}

// Status returns the status of the operation, with its saved data.
func (p *Player) Status() event.OperationStatus {
	s := &p.state
	return event.OperationStatus{
		OperationID: s.Operation.ID, State: s.Status, Cursor: s.Cursor, Position: s.Position(p.process),
		Message: s.Message, Error: s.Error, NotCompleted: slices.Clone(s.NotCompleted), Details: s.Details,
	}
}

// Completed returns the steps that a later deprovisioning need not run.
func (p *Player) Completed() []string { return p.state.CompletedSteps(p.process) }

// Steps returns the facts of all executions so far, in order.
func (p *Player) Steps() []event.StepFinished { return p.facts }

func (p *Player) apply(e engine.Event, now time.Time) error {
	next, effects, err := engine.Apply(p.process, p.state, e, now)
	if err != nil {
		return err
	}
	p.state = next
	for _, f := range effects.Facts {
		if step, ok := f.Payload.(*event.StepFinished); ok {
			p.facts = append(p.facts, *step)
		}
	}
	return nil
}
