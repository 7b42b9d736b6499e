package dispatch

import (
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func (d *Dispatcher) command(w *work) (bus.Message, error) {
	worker, command := engine.Command(w.process, &w.row.State)
	id := w.row.Operation.ID
	e, err := bus.New(event.TypeStepExecute, event.CommandID(id, command.Cursor), event.SourceOrchestrator, id, d.deps.Now(),
		&event.Command{StepExecute: command, EncodedOperation: w.row.Encoded})
	if err != nil {
		return bus.Message{}, fmt.Errorf("make the command for step %s of operation %s: %w", command.Step, id, err)
	}
	if parent := d.tracer.commandTrace(w.row); parent != "" {
		e.SetExtension(bus.TraceParent, parent)
	}
	if d.rampedVersion(w, worker) != "" {
		worker = event.Ramped(worker)
	}
	return bus.Message{
		Subject: event.CommandSubject(worker, command.Step),
		ID:      event.DispatchID(id, command.Cursor, command.Dispatch),
		Event:   e,
	}, nil
}

// rampedVersion returns the version of the ramped replicas that get the command of an operation; empty if the other replicas get it.
func (d *Dispatcher) rampedVersion(w *work, worker string) string {
	return d.deps.Ramps.Version(&w.row.Operation, worker, w.row.StartedAt)
}

// serves reports whether a live replica serves a step for an operation, and the version that it must have; empty for any.
func (d *Dispatcher) serves(op *event.Operation, startedAt time.Time, worker, step string) (alive bool, version string) {
	if version = d.deps.Ramps.Version(op, worker, startedAt); version != "" {
		return d.deps.Workers.ServesRamped(worker, step, version), version
	}
	return d.deps.Workers.Serves(worker, step), ""
}

func (d *Dispatcher) fact(w *work, f *engine.Fact) (bus.Message, error) {
	op := &w.row.Operation
	subject := event.FactSubject(op.Type, f.Type)
	e, err := bus.New(f.Type, event.CommandID(op.ID, f.Cursor)+"/"+string(f.Type), event.SourceOrchestrator, op.ID, d.deps.Now(), f.Payload)
	if err != nil {
		return bus.Message{}, fmt.Errorf("make a fact of operation %s: %w", op.ID, err)
	}
	if parent := d.tracer.factTrace(w.row); parent != "" {
		e.SetExtension(bus.TraceParent, parent)
	}
	return bus.Message{Subject: subject, Event: e, Quiet: true}, nil
}
