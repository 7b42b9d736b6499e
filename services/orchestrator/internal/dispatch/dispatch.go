// Package dispatch connects the engine with the database and the bus. It handles
// batches of requests and results, due operations and actions of operators: it
// applies them with the engine, commits the new states, publishes commands and
// facts, and only then acknowledges the messages.
//
// After a crash between the commit and the publication the message is
// redelivered. It no longer matches the cursor, so the dispatcher publishes the
// current command again under the same message id. The outbox publishes all
// commands, and publishes those again that the bus has not confirmed or has lost.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Config is the configuration of a Dispatcher.
type Config struct {
	// BatchTimeout bounds the time for one batch; zero means no limit.
	BatchTimeout time.Duration
	// FoldAfter is the number of cursors after which the history of an operation that repeats a step is folded; zero means foldAfter.
	FoldAfter int64
}

// Deps are the dependencies of a Dispatcher. Holds, Limits, Ramps, Backlog, Metrics, Log, Apply, Watcher, Notifier and TracerProvider may be nil.
type Deps struct {
	Store       Store
	Publisher   Publisher
	Definitions Definitions
	Workers     Workers
	Purger      MemoryPurger
	// Holds knows the holds, and Limits the limits; nil means that there are none.
	Holds  Holds
	Limits Limits
	// Ramps knows the ramps of workers; nil means that there are none.
	Ramps Ramps
	// Backlog knows which messages are not acknowledged; nil means that stored histories are not folded.
	Backlog Backlog
	// Metrics are the metrics to update; nil means metrics that are not registered.
	Metrics *Metrics
	Log     *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// TracerProvider creates the spans of operations; nil turns tracing off.
	TracerProvider trace.TracerProvider
	// Watcher is notified of commits; it may be nil.
	Watcher Watcher
	// Notifier notifies workers of cancelled commands; nil means that they are not notified.
	Notifier Notifier
	// Apply replaces engine.Apply in simulations; nil means engine.Apply.
	Apply func(*process.Process, engine.State, engine.Event, time.Time) (engine.State, engine.Effects, error)
	// Wake is called with the time at which a sweep must run.
	Wake func(at time.Time)
}

// Dispatcher carries out the decisions of the engine. It is safe for concurrent use, also by several processes on one database.
type Dispatcher struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *Metrics
	cache   *cache
	tracer  *tracer // nil if tracing is off
	outbox  *outbox
	// admissions is signalled when limits may have room for pending operations.
	admissions chan struct{}
	// windows are the queues after which the next admission begins to read, for customers and for upgrades.
	windows map[bool]*place
	folder  folder
	granter granter
	// releases is used by ReleaseHeld only.
	releases releases
	// rareLog limits log lines that any client of the bus can cause.
	rareLog rate.Sometimes
	// dueBatch is the constant dueBatch except in tests.
	dueBatch int
}

// New returns a Dispatcher.
func New(cfg Config, deps Deps) (*Dispatcher, error) {
	if cfg.FoldAfter == 0 {
		cfg.FoldAfter = foldAfter
	}
	if deps.Metrics == nil {
		deps.Metrics = NewMetrics(nil)
	}
	if deps.Holds == nil {
		deps.Holds = noHolds{}
	}
	if deps.Limits == nil {
		deps.Limits = noLimits{}
	}
	if deps.Ramps == nil {
		deps.Ramps = noRamps{}
	}
	if deps.Apply == nil {
		deps.Apply = engine.Apply
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	d := &Dispatcher{
		cfg: cfg, deps: deps, log: deps.Log, metrics: deps.Metrics, cache: newCache(cacheSize, deps.Now), dueBatch: dueBatch,
		rareLog:    rate.Sometimes{First: logAtFirst, Interval: logInterval},
		admissions: make(chan struct{}, 1), windows: map[bool]*place{false: {}, true: {}},
		granter: granter{queues: map[string]bool{}, wake: make(chan struct{}, 1)},
	}
	d.tracer = newTracer(tracing.TracerOf(deps.TracerProvider, "services/orchestrator"))
	d.metrics.prepare(deps.Definitions)
	d.outbox = &outbox{
		deps: &d.deps, metrics: d.metrics, message: d.command, fact: d.fact, fail: d.failUnsendable, hold: d.holdUnpublished,
		newWork: func(ctx context.Context, row *store.Row) (*work, error) { return d.newWork(ctx, row, true) },
	}
	return d, nil
}

// PrepareMetrics creates the series of the current definitions. It must be called after they have changed.
func (d *Dispatcher) PrepareMetrics() { d.metrics.prepare(d.deps.Definitions) }

// The log has the first logAtFirst rejected messages, and then at most one per logInterval. The metrics count all of them.
const (
	logAtFirst  = 20
	logInterval = 10 * time.Second
)

// withBatchTimeout runs f with the time limit of a batch, so that a database that does not answer cannot block a handler.
func (d *Dispatcher) withBatchTimeout(ctx context.Context, f func(ctx context.Context) error) error {
	if d.cfg.BatchTimeout == 0 {
		return f(ctx)
	}
	return withTimeout(ctx, d.cfg.BatchTimeout, f)
}

// query is withBatchTimeout for a read.
func query[T any](ctx context.Context, d *Dispatcher, read func(ctx context.Context) (T, error)) (found T, err error) {
	err = d.withBatchTimeout(ctx, func(ctx context.Context) (err error) {
		found, err = read(ctx)
		return err
	})
	return found, err
}

func withTimeout(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err) // the error of an interrupted statement does not name the cause
	}
	return err
}

// runToCompletion is withBatchTimeout for a batch that was not caused by a message and is therefore not redelivered. Once started, it
// is completed even if the orchestrator stops or the operator disconnects. Otherwise a command that is committed but not published
// would wait until its limit.
func (d *Dispatcher) runToCompletion(ctx context.Context, f func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return d.withBatchTimeout(context.WithoutCancel(ctx), f)
}

// committed updates metrics, watchers, traces and the cache after a commit, and lets the freed room of limits be granted.
func (d *Dispatcher) committed(works []*work) {
	d.metrics.observe(works)
	d.watch(works)
	d.notifyWorkers(works)
	d.trace(works)
	for _, w := range works {
		d.folder.note(w, d.cfg.FoldAfter)
		if w.row.Limited() {
			d.granter.add(false, w.row.Queue)
		}
		d.granter.add(false, w.freed...)
		if w.row.InFlight() {
			d.cache.put(w.row)
		} else {
			d.cache.drop(w.row.Operation.ID)
		}
	}
}

// uncache removes the rows of works from the cache.
func (d *Dispatcher) uncache(works []*work) {
	for _, w := range works {
		d.cache.drop(w.row.Operation.ID)
	}
}

// errNothingToDo ends a transaction that has nothing to write.
var errNothingToDo = errors.New("nothing to do")
