package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// work is the processing of one operation in one batch.
type work struct {
	row     *store.Row // the new row, or the one that was read if there is no change
	process *process.Process
	change  *store.Change
	effects engine.Effects
	// inserted reports whether the operation is new in this batch.
	inserted bool
	// fresh reports whether row was read from the database in this batch; otherwise it comes from the cache.
	fresh bool
	// republish means that the current command must be published again although nothing has changed.
	republish bool
	// hasMessage means that a message caused the change, and that the redelivery of the message publishes the facts again. base is the
	// cursor before the first change.
	hasMessage bool
	base       int64
	// redelivered is the range of facts to publish again because their message was redelivered; nil for none.
	redelivered *store.FactRange

	// decide is Deps.Apply; holds and limits are those of Deps. tracer, if not nil, records the ended steps as spans; applied are the results that
	// caused the changes.
	decide  func(*process.Process, engine.State, engine.Event, time.Time) (engine.State, engine.Effects, error)
	holds   Holds
	limits  Limits
	tracer  *tracer
	spans   []tracing.Span
	applied []applied
	// cancelled are the commands that this change cancels.
	cancelled []cancelled
	// delivered is the event that this change delivers; nil for none.
	delivered *store.Signalled
	// freed are the limits in which a command no longer counts.
	freed []string
}

func (d *Dispatcher) newWork(ctx context.Context, row *store.Row, fresh bool) (*work, error) {
	p, err := d.deps.Definitions.Pinned(ctx, row.Definition)
	if err != nil {
		return nil, fmt.Errorf("operation %s: %w", row.Operation.ID, err)
	}
	if fresh { // no other goroutine has the row yet
		if err := encodeOnce(row); err != nil {
			return nil, err
		}
	}
	return &work{row: row, process: p, fresh: fresh, decide: d.deps.Apply, holds: d.deps.Holds, limits: d.deps.Limits, tracer: d.tracer}, nil
}

// encodeOnce encodes the operation for all its commands. It removes large parameters of a deprovisioning that would not fit into a
// command, so that an instance that an earlier release created can be removed.
func encodeOnce(row *store.Row) error {
	if err := encode(row); err != nil {
		return err
	}
	if row.Operation.Type != event.Deprovision || row.EncodedSize <= maxCommand-event.MaxDetails {
		return nil
	}
	row.Operation.Parameters = withoutLarge(row.Operation.Parameters)
	return encode(row)
}

func encode(row *store.Row) (err error) {
	if row.Encoded, err = json.Marshal(&row.Operation); err != nil {
		return fmt.Errorf("operation %s: encode the request: %w", row.Operation.ID, err)
	}
	row.EncodedSize = event.StoredSize(row.Encoded)
	return nil
}

// withoutLarge returns the parameters of up to 1 KiB. No deprovisioning step needs a larger one.
func withoutLarge(parameters json.RawMessage) json.RawMessage {
	const large = 1 << 10
	members := map[string]json.RawMessage{}
	if json.Unmarshal(parameters, &members) != nil {
		return nil
	}
	maps.DeleteFunc(members, func(_ string, value json.RawMessage) bool { return event.StoredSize(value) > large })
	small, err := json.Marshal(members)
	if err != nil {
		return nil
	}
	return small
}

// apply applies an event with the engine. Repeated calls accumulate into one write. If the next command would be too large for the
// bus, apply fails the operation. A command in the scope of a hold or of a limit is decided, but not sent. A command that is sent again keeps its room.
func (w *work) apply(e engine.Event, now time.Time) error {
	before := w.row
	if err := w.applyOne(e, now); err != nil {
		return err
	}
	for w.effects.Dispatch && w.row.InFlight() {
		size := w.commandSize()
		if size <= maxCommand {
			break
		}
		err := w.applyOne(engine.Unsendable{Cursor: w.row.Cursor, Reason: w.tooLarge(size, maxCommand)}, now)
		if err != nil {
			return err
		}
	}
	if !w.effects.Dispatch || !w.row.InFlight() {
		return nil
	}
	if before.InFlight() && w.row.AwaitedCursor() == before.AwaitedCursor() && w.row.Dispatch == before.Dispatch {
		w.republish = true // a worker may have it and answer, so it stays in flight; the outbox keeps it inside a hold
		return nil
	}
	if id := heldBy(w.holds, w); id != "" {
		return w.applyOne(engine.Hold{ID: id, Cursor: w.row.Cursor, Dispatch: w.row.Dispatch}, now)
	}
	if len(w.row.Granted) > 0 {
		return nil
	}
	set, _ := w.limits.Current()
	keys := keysOf(set, w)
	if _, granted := e.(engine.Grant); granted || len(keys) == 0 {
		return nil
	}
	return w.applyOne(engine.Park{Queue: keys[0].String(), Cursor: w.row.Cursor, Dispatch: w.row.Dispatch}, now)
}

// maxCommand is the maximum event.StoredSize of the request and the saved data of a command, and of its event; the rest of a message is
// left for headers, names and times.
const maxCommand = event.MaxPayload - 16<<10

// commandSize returns the event.StoredSize of the request and the saved data, and the size of the event. The size of the saved data is
// bounded, so it is measured only if the rest is large.
func (w *work) commandSize() int {
	size := w.row.EncodedSize + w.eventSize()
	if size <= maxCommand-event.MaxDetails {
		return size
	}
	return size + event.StoredSize(w.row.Details)
}

// eventSize returns the size of the data of the event in the current command.
func (w *work) eventSize() int {
	if len(w.row.Events) == 0 {
		return 0
	}
	_, command := engine.Command(w.process, &w.row.State)
	if command.Event == nil {
		return 0
	}
	data, err := json.Marshal(command.Event.Data)
	if err != nil {
		return 0 // the command cannot be encoded either
	}
	return len(data)
}

// tooLarge returns the reason why the current command cannot be sent.
func (w *work) tooLarge(size, limit int) string {
	_, command := engine.Command(w.process, &w.row.State)
	return fmt.Sprintf("the command for step %s is too large to be sent: %d bytes, at most %d are allowed; the order has %d bytes, the saved data %d, the event %d",
		command.Step, size, limit, w.row.EncodedSize, event.StoredSize(w.row.Details), w.eventSize())
}

func (w *work) applyOne(e engine.Event, now time.Time) error {
	state, effects, err := w.decide(w.process, w.row.State, e, now)
	if err != nil {
		return err
	}
	if !effects.Changed {
		return nil
	}
	w.noteCancel(e, &state)
	if len(w.row.Granted) > 0 && len(state.Granted) == 0 {
		w.freed = append(w.freed, w.row.Granted...)
	}
	changed := !bytes.Equal(state.Details, w.row.Details)
	next := *w.row
	next.State = state
	if w.change == nil {
		w.change, w.base = &store.Change{}, w.row.Cursor
	}
	w.change.Row = &next
	w.change.History = append(w.change.History, effects.History...)
	w.change.DetailsChanged = w.change.DetailsChanged || changed
	if w.tracer != nil {
		w.spans = w.tracer.transition(w.spans, w.process, w.row, &next, effects.History, now)
	}
	w.row = &next
	// Only the last command is published: the results in this batch answer the earlier ones.
	w.effects.Dispatch = effects.Dispatch
	w.effects.Facts = append(w.effects.Facts, effects.Facts...)
	w.effects.PurgeStages = append(w.effects.PurgeStages, effects.PurgeStages...)
	w.effects.Stages = append(w.effects.Stages, effects.Stages...)
	w.effects.Finished = effects.Finished
	return nil
}

// noteRedelivery records that the message with a cursor was redelivered: the facts of its transition may not be published.
func (w *work) noteRedelivery(cursor int64) {
	if cursor < 0 || cursor >= w.row.Cursor {
		return
	}
	r := store.FactRange{OperationID: w.row.Operation.ID, After: cursor, Through: cursor + int64(engine.MaxEntries(w.process))}
	if w.redelivered != nil {
		r.After, r.Through = min(r.After, w.redelivered.After), max(r.Through, w.redelivered.Through)
	}
	w.redelivered = &r
}

// release prepares the release of the instance if the operation, which was in progress, has ended. Transactions that lock the instance do not
// need it.
func (w *work) release() {
	if w.change == nil || !w.effects.Finished {
		return
	}
	w.change.Release = store.NewRelease(&w.row.State, func() []string { return w.row.CompletedSteps(w.process) })
}

// changesOf returns the changes of works that have one.
func changesOf(works []*work) []*store.Change {
	changes := make([]*store.Change, 0, len(works))
	for _, w := range works {
		if w.change == nil {
			continue
		}
		if !w.hasMessage && len(w.effects.Facts) > 0 {
			w.change.FactsAfter = &w.base
		}
		changes = append(changes, w.change)
	}
	return changes
}
