package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// publish sends the commands and facts of committed works, commands first because workers wait for them. It returns when
// the bus has taken the commands. One that can never be sent fails its operation and holds up no other. A fact that is not taken is not
// worth another round: readers repair themselves by asking.
func (d *Dispatcher) publish(ctx context.Context, works []*work) error {
	messages := make([]bus.Message, 0, 4*len(works))
	sent := make([]*work, 0, len(works)) // by the index of the command
	var never []unsendable
	for _, w := range works {
		if (w.effects.Dispatch || w.republish) && w.row.InFlight() {
			m, err := d.command(w)
			if err != nil {
				never = append(never, unsendable{w, err.Error()})
				continue
			}
			messages, sent = append(messages, m), append(sent, w)
		}
	}
	for _, w := range works {
		for i := range w.effects.Facts {
			m, err := d.fact(w, &w.effects.Facts[i])
			if err != nil {
				d.metrics.factsLost.Inc()
				d.log.Error("fact cannot be published", "err", err)
				continue
			}
			messages = append(messages, m)
		}
	}
	err := d.deps.Publisher.Publish(ctx, messages...)
	refused, err := d.refused(sent, err)
	for _, u := range append(never, refused...) {
		if failing := d.failUnsendable(ctx, u); failing != nil {
			err = errors.Join(err, failing)
		}
	}
	return err
}

// unsendable is an operation whose command can never be sent.
type unsendable struct {
	work   *work
	reason string
}

// refused sorts out what the bus has not taken: commands that are too large, and an error if others are to be published again.
func (d *Dispatcher) refused(sent []*work, err error) ([]unsendable, error) {
	if err == nil {
		return nil, nil
	}
	failed, ok := errors.AsType[*bus.PublishError](err)
	if !ok {
		return nil, fmt.Errorf("publish commands and facts: %w", err)
	}
	var never []unsendable
	facts, again := 0, false
	for _, f := range failed.Failures {
		tooLarge, is := errors.AsType[*bus.TooLargeError](f.Err)
		switch {
		case f.Index >= len(sent):
			facts++
		case is:
			w := sent[f.Index]
			never = append(never, unsendable{w, w.tooLarge(int(tooLarge.Size), int(tooLarge.Limit))})
		default:
			again = true
		}
	}
	if again {
		return never, fmt.Errorf("publish commands: %w", err)
	}
	if facts > 0 {
		d.metrics.factsLost.Add(float64(facts))
		d.log.Warn("facts not published", "err", err)
	}
	return never, nil
}

// failUnsendable fails an operation whose command can never be sent, unless it has moved on.
func (d *Dispatcher) failUnsendable(ctx context.Context, u unsendable) error {
	row := u.work.row
	d.log.Error("command cannot be sent and fails its operation", "operation_id", row.Operation.ID, "instance_id", row.Operation.InstanceID, "err", u.reason)
	err := d.Act(ctx, row.Operation.ID, engine.Unsendable{Cursor: row.Cursor, Reason: u.reason})
	if errors.Is(err, engine.ErrNotPossible) {
		return nil
	}
	return err
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
