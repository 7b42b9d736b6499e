package worker

import (
	"context"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
)

// SetAckWait shortens the time after which the bus redelivers a command.
func SetAckWait(w *Worker, d time.Duration) { w.spec.AckWait = d }

// SetSlotPatience sets how long commands wait in a busy process. A question about them has the same limit.
func SetSlotPatience(w *Worker, d time.Duration) { w.slotPatience = d }

// SetOverdueGrace sets how long a step may run after its deadline before it is abandoned.
func SetOverdueGrace(w *Worker, d time.Duration) { w.overdueGrace = d }

// ExtendedFor is how long a late command is kept that may have been extended.
const ExtendedFor = extendedFor

// AskCurrent asks the orchestrator about any number of commands.
func AskCurrent(ctx context.Context, w *Worker, patience time.Duration, refs []event.CommandRef) map[event.CommandRef]bool {
	p := &pool{w: w}
	commands := make([]*taken, len(refs))
	for i, ref := range refs {
		commands[i] = &taken{command: event.StepExecute{Operation: event.Operation{ID: ref.OperationID}, Cursor: ref.Cursor}}
	}
	return p.askCurrent(ctx, patience, commands).current
}

// StoredOverrides is an entry of the stage memory.
type StoredOverrides = storedOverrides

// ServiceVersion is the version of the micro service of a worker.
func ServiceVersion(version string) string { return serviceVersion(version) }

// ReadCommand decodes and validates a command.
func ReadCommand(e cloudevents.Event) (event.StepExecute, error) {
	return readCommand(&bus.Delivery{Event: e})
}

// Message returns the message of a result.
func Message(name string, command event.StepExecute, r *Result, traceparent string) (bus.Message, error) {
	w := &Worker{cfg: Config{Name: name}}
	return w.message(&taken{command: command}, r, traceparent)
}

// WithDefaults returns the configuration with the defaults of a worker.
func WithDefaults(c Config) Config { return c.withDefaults() }
