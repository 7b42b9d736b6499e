package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// publish sends the commands and facts of committed works, commands first because somebody waits for them. It returns when
// the bus has taken the commands. A fact that is not taken is not worth another round: readers repair themselves by asking.
func (d *Dispatcher) publish(ctx context.Context, works []*work) error {
	messages := make([]bus.Message, 0, 4*len(works))
	for _, w := range works {
		if (w.effects.Dispatch || w.republish) && w.row.InFlight() {
			m, err := d.command(w)
			if err != nil {
				return err
			}
			messages = append(messages, m)
		}
	}
	commands := len(messages)
	for _, w := range works {
		for i := range w.effects.Facts {
			m, err := d.fact(w, &w.effects.Facts[i])
			if err != nil {
				return err
			}
			messages = append(messages, m)
		}
	}
	err := d.deps.Publisher.Publish(ctx, messages...)
	if err == nil {
		return nil
	}
	var failed *bus.PublishError
	if !errors.As(err, &failed) {
		return fmt.Errorf("publish commands and facts: %w", err)
	}
	for _, f := range failed.Failures {
		if f.Index < commands {
			return fmt.Errorf("publish commands: %w", err)
		}
	}
	d.metrics.factsLost.Add(float64(len(failed.Failures)))
	d.log.Warn("facts not published", "err", err)
	return nil
}

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
