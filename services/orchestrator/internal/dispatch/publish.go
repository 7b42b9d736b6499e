package dispatch

import (
	"fmt"

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
	return bus.Message{
		Subject: event.CommandSubject(worker, command.Step),
		ID:      event.DispatchID(id, command.Cursor, command.Dispatch),
		Event:   e,
	}, nil
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
