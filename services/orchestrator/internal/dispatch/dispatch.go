// Package dispatch is the shell around the engine. It takes batches of requests
// and results from the bus, due operations from the clock and actions from
// operators, lets the engine decide, writes the new states in one commit,
// publishes what follows, and only then acknowledges what caused it.
//
// A crash between the commit and the publication is repaired by the redelivery
// of the message: it no longer matches the cursor, and the command that is out
// is published again under the same message id. What no message has caused, and
// what the bus has not confirmed or has lost, is found by the outbox.
package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Config is how a Dispatcher behaves.
type Config struct {
	// Admission is the greatest number of operations in progress by type; a type without an entry has no limit.
	Admission map[event.OperationType]int
	// BatchTimeout bounds the work on one batch; zero means no limit.
	BatchTimeout time.Duration
}

// Deps is what a Dispatcher works with. Metrics, Log, Apply, Watcher and TracerProvider may be nil.
type Deps struct {
	Store       Store
	Publisher   Publisher
	Definitions Definitions
	Workers     Workers
	Purger      Cleaner
	// Metrics count what happens; nil counts nothing that can be read.
	Metrics *Metrics
	Log     *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// TracerProvider makes the spans of operations; nil makes none.
	TracerProvider trace.TracerProvider
	// Watcher is told what was committed; nil is nobody.
	Watcher Watcher
	// Apply is engine.Apply, unless a simulation watches it.
	Apply func(*process.Process, engine.State, engine.Event, time.Time) (engine.State, engine.Effects, error)
	// Wake is called when an operation has begun to wait until a time.
	Wake func(at time.Time)
}

// Dispatcher carries out what the engine decides. It is safe for concurrent use, also by several processes on one database.
type Dispatcher struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *Metrics
	cache   *cache
	tracer  *tracer // nil: none
	outbox  *outbox
	// seldom bounds the log of what anybody on the bus can cause.
	seldom rate.Sometimes
	// dueBatch is the constant of that name but in tests.
	dueBatch int
}

// New returns a Dispatcher.
func New(cfg Config, deps Deps) (*Dispatcher, error) {
	for t, n := range cfg.Admission {
		if n < 0 {
			return nil, fmt.Errorf("admission of %s: %d: must not be negative; 0 stops new operations of the type", t, n)
		}
	}
	if deps.Metrics == nil {
		deps.Metrics = NewMetrics(nil)
	}
	if deps.Apply == nil {
		deps.Apply = engine.Apply
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	d := &Dispatcher{cfg: cfg, deps: deps, log: deps.Log, metrics: deps.Metrics, cache: newCache(cacheSize), seldom: rate.Sometimes{First: logAtFirst, Interval: logInterval}, dueBatch: dueBatch}
	d.tracer = newTracer(tracing.TracerOf(deps.TracerProvider, "services/orchestrator"))
	d.metrics.prepare(deps.Definitions, cfg.Admission)
	d.outbox = &outbox{deps: &d.deps, metrics: d.metrics, message: d.command, fact: d.fact, open: func(ctx context.Context, row *store.Row) (*work, error) {
		return d.newWork(ctx, row, true)
	}, fail: d.failUnsendable}
	return d, nil
}

// logAtFirst and logInterval bound what is logged of messages that are refused: the first few, and then one in a while. The metrics
// count all of them.
const (
	logAtFirst  = 20
	logInterval = 10 * time.Second
)

// limited runs f within the time that a batch may take. A database that has fallen silent must not hold a handler for ever.
func (d *Dispatcher) limited(ctx context.Context, f func(ctx context.Context) error) error {
	if d.cfg.BatchTimeout == 0 {
		return f(ctx)
	}
	return withTimeout(ctx, d.cfg.BatchTimeout, f)
}

func withTimeout(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err) // the error of a statement that was cut short does not say so
	}
	return err
}

// whole is limited for a batch that no message has caused, and that nobody repeats: once begun it is finished, also when the
// orchestrator is to stop or the operator who asked for it is gone. Otherwise a command that was committed and not yet published would
// wait until its limit is over.
func (d *Dispatcher) whole(ctx context.Context, f func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return d.limited(context.WithoutCancel(ctx), f)
}

// work is what is done to one operation in one batch.
type work struct {
	row     *store.Row // as it will be, or as it is while nothing has changed
	process *process.Process
	change  *store.Change
	effects engine.Effects
	// inserted tells that the operation is new in this batch.
	inserted bool
	// fresh tells that row was read from the database in this batch and not from the cache.
	fresh bool
	// republish tells that the command that is out is to be published again, although nothing has changed.
	republish bool
	// guarded tells that the facts of the work are published again when its message comes again; base is the cursor before the first change.
	guarded bool
	base    int64
	// again is whose facts are published again because their message has come again; nil for none.
	again *store.FactRange

	// decide is Deps.Apply. tracer, if not nil, notes in spans what the changes have ended; folds are the results that caused them.
	decide func(*process.Process, engine.State, engine.Event, time.Time) (engine.State, engine.Effects, error)
	tracer *tracer
	spans  []tracing.Span
	folds  []folded
}

func (d *Dispatcher) newWork(ctx context.Context, row *store.Row, fresh bool) (*work, error) {
	p, err := d.deps.Definitions.Pinned(ctx, row.Definition)
	if err != nil {
		return nil, fmt.Errorf("operation %s: %w", row.Operation.ID, err)
	}
	if fresh { // nobody else has the row yet
		if err := encodeOnce(row); err != nil {
			return nil, err
		}
	}
	return &work{row: row, process: p, fresh: fresh, decide: d.deps.Apply, tracer: d.tracer}, nil
}

// encodeOnce encodes the operation for all its commands. A deprovisioning whose parameters no command can carry loses the large ones: an
// earlier release has created such an instance, and it must be possible to remove it.
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

// withoutLarge returns parameters without those of more than 1 KiB. No step that removes something needs one of these.
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

// apply lets the engine decide on an event. It may be called repeatedly for one operation; the changes add up to one write. An operation
// whose next command would be too large for the bus is failed instead.
func (w *work) apply(e engine.Event, now time.Time) error {
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
	return nil
}

// maxCommand is the largest event.StoredSize of a command's order and saved data together; the rest of a message is for headers, names
// and times.
const maxCommand = event.MaxPayload - 16<<10

// commandSize is the event.StoredSize of the order and the saved data. What is saved is bounded, so it is counted only beside a large
// order.
func (w *work) commandSize() int {
	if w.row.EncodedSize <= maxCommand-event.MaxDetails {
		return w.row.EncodedSize
	}
	return w.row.EncodedSize + event.StoredSize(w.row.Details)
}

// tooLarge says why the command that is out cannot be sent.
func (w *work) tooLarge(size, limit int) string {
	_, command := engine.Command(w.process, &w.row.State)
	return fmt.Sprintf("the command for step %s is too large to be sent: %d bytes, at most %d are allowed; the order has %d bytes, the saved data %d",
		command.Step, size, limit, w.row.EncodedSize, event.StoredSize(w.row.Details))
}

func (w *work) applyOne(e engine.Event, now time.Time) error {
	state, effects, err := w.decide(w.process, w.row.State, e, now)
	if err != nil {
		return err
	}
	if !effects.Changed {
		return nil
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
	// Only the last command counts: an earlier one of the same batch was answered in it.
	w.effects.Dispatch = effects.Dispatch
	w.effects.Facts = append(w.effects.Facts, effects.Facts...)
	w.effects.PurgeStages = append(w.effects.PurgeStages, effects.PurgeStages...)
	w.effects.Stages = append(w.effects.Stages, effects.Stages...)
	w.effects.Finished = effects.Finished
	return nil
}

// comesAgain notes that the message with a cursor has come again: the facts of the transition that it has caused may not be published.
func (w *work) comesAgain(cursor int64) {
	if cursor < 0 || cursor >= w.row.Cursor {
		return
	}
	r := store.FactRange{OperationID: w.row.Operation.ID, After: cursor, Through: cursor + int64(engine.MaxEntries(w.process))}
	if w.again != nil {
		r.After, r.Through = min(r.After, w.again.After), max(r.Through, w.again.Through)
	}
	w.again = &r
}

// release prepares the release of the instance by an operation that was in progress and has ended.
func (w *work) release() {
	w.change.Release = store.NewRelease(&w.row.State, func() []string { return w.row.CompletedSteps(w.process) })
}

// freed is what ended operations have left to those that wait.
type freed struct {
	// instances have operations that wait for them.
	instances []string
	// room tells that the type of one of the ended operations has a limit.
	room bool
}

// add notes an operation that has ended, if it has; waiting tells that others wait for its instance.
func (f *freed) add(d *Dispatcher, w *work, waiting bool) {
	if !w.row.Status.Final() {
		return
	}
	if _, limited := d.cfg.Admission[w.row.Operation.Type]; limited {
		f.room = true
	}
	if waiting {
		f.instances = append(f.instances, w.row.Operation.InstanceID)
	}
}

// after carries out what follows from committed works, and then starts those that waited for the instances that became free.
func (d *Dispatcher) after(ctx context.Context, works []*work, waiting map[string]int) error {
	free, err := d.carryOut(ctx, works, waiting)
	if err != nil {
		return err
	}
	d.admitFreed(ctx, free)
	d.forgetUsers(ctx, works) // last: nothing waits for it
	return nil
}

// admitFreed starts operations that waited for what has become free. What fails is left to the sweep.
func (d *Dispatcher) admitFreed(ctx context.Context, free freed) {
	if len(free.instances) > 0 {
		if err := d.AdmitInstances(ctx, free.instances); err != nil {
			d.log.Warn("pending operations not started", "err", err)
		}
	}
	if free.room {
		if err := d.Admit(ctx); err != nil {
			d.log.Warn("pending operations not admitted", "err", err)
		}
	}
}

// carryOut does what follows from committed works: it publishes, purges and wakes, and returns what became free. It starts nothing.
func (d *Dispatcher) carryOut(ctx context.Context, works []*work, waiting map[string]int) (free freed, err error) {
	failed, err := d.outbox.send(ctx, works)
	for _, w := range failed {
		free.add(d, w, true)
	}
	if err != nil {
		return freed{}, err // the sweep finds what waits
	}
	var gone []string
	for _, w := range slices.Concat(works, failed) {
		if w.change == nil {
			continue
		}
		if w.row.Waiting() {
			d.deps.Wake(w.row.DueAt)
		}
		for _, stage := range w.effects.PurgeStages {
			d.deps.Purger.Purge(w.row.Operation.ID, stage)
		}
		if w.change.Release == nil {
			continue
		}
		others := waiting[w.row.Operation.ID] > 0
		free.add(d, w, others)
		if !others && w.change.Release.Gone {
			gone = append(gone, w.row.Operation.InstanceID)
		}
	}
	if len(gone) > 0 {
		if err := d.deps.Store.DropInstances(ctx, gone); err != nil {
			d.log.Warn("instances not forgotten", "err", err)
		}
	}
	return free, nil
}

// forgetUsers removes personal data once an instance is gone for good. It is also done when the result of the last step comes
// again, since a crash may have come in between.
func (d *Dispatcher) forgetUsers(ctx context.Context, works []*work) {
	var ended []string
	for _, w := range works {
		if w.change == nil && !w.republish {
			continue
		}
		s := &w.row.State
		removed := s.Operation.Type == event.Deprovision && !s.Operation.Temporary
		if removed && s.Status == event.Succeeded && len(s.NotCompleted) == 0 {
			ended = append(ended, s.Operation.ID)
		}
	}
	if len(ended) == 0 {
		return
	}
	if err := d.deps.Store.ForgetUsers(ctx, ended); err != nil {
		d.log.Warn("users not forgotten", "err", err)
	}
}

// remember counts what was just committed, and keeps the rows, because their next results are on the way.
func (d *Dispatcher) remember(works []*work) {
	d.metrics.observe(works)
	d.watch(works)
	d.trace(works)
	for _, w := range works {
		if w.row.InFlight() {
			d.cache.put(w.row)
		} else {
			d.cache.drop(w.row.Operation.ID)
		}
	}
}

func (d *Dispatcher) forget(works []*work) {
	for _, w := range works {
		d.cache.drop(w.row.Operation.ID)
	}
}

// changesOf lists the changes of works; works without a change have none.
func changesOf(works []*work) []*store.Change {
	changes := make([]*store.Change, 0, len(works))
	for _, w := range works {
		if w.change == nil {
			continue
		}
		if !w.guarded && len(w.effects.Facts) > 0 {
			w.change.FactsAfter = &w.base
		}
		changes = append(changes, w.change)
	}
	return changes
}

// errNothingToDo ends a transaction that found that it has nothing to write.
var errNothingToDo = errors.New("nothing to do")
