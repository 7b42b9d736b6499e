// Package recovery sends commands again that workers have not received. After the
// loss of a stream it sends the commands of all operations in flight. After a restart
// of the bus, which may have lost the ends of its streams, or if the bus has not
// confirmed commands in time, it sends those that neither the bus nor a worker has. After the start of an orchestrator it sends the commands that a killed orchestrator may
// have committed without publishing them. The operations continue within seconds
// instead of waiting for the execution limits of their steps.
package recovery

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
)

// Bus returns when streams were created, and what they hold.
type Bus interface {
	Range(ctx context.Context, name event.Stream) (bus.StreamRange, error)
	MessageIDs(ctx context.Context, name event.Stream) (map[string]bool, error)
}

// Workers returns the commands that workers execute.
type Workers interface {
	Taken(ctx context.Context) (liveness.Taken, error)
}

// Dispatcher sends commands again.
type Dispatcher interface {
	// AfterLoss sends commands again that were sent before a loss of commands and results, or only of results. It skips commands that a
	// worker still has, and commands without a live worker, which it counts. It may be repeated.
	AfterLoss(ctx context.Context, before time.Time, resultsOnly bool, held func(worker, commandID string) bool) (sent, unserved int, err error)
	// AfterStart publishes recent commands again under the same ids. The bus has kept all messages since keptSince. Of the commands sent
	// shortly after that it skips those that a worker still has. It may be repeated.
	AfterStart(ctx context.Context, keptSince time.Time, held func(worker, commandID string) bool) (published int, err error)
	// Lapsed returns the last time at which the dispatcher gave up a command that the bus had not confirmed; zero if there was none.
	Lapsed() time.Time
}

// memory is the stream of the stage memory. It is lost when its server restarts.
const memory = event.Stream("KV_" + event.StageBucket)

// Config is the configuration of a Recovery. All fields are required.
type Config struct {
	// Every is the time between two checks of the streams, and Timeout bounds each check. Timeout must be short, because a request that was
	// sent before the connection was lost gets no answer.
	Every, Timeout time.Duration
	// Settle is the time after a loss before workers report what they execute. Until then they have found the new streams, and have started
	// or dropped the commands that they fetched from the old ones.
	Settle time.Duration
	// WorkerTimeout is the time to wait for workers that do not answer or are missing. After that their commands are sent again at their
	// execution limits.
	WorkerTimeout time.Duration
	// Redelivery is the time after a restart of the bus within which it redelivers unacknowledged results.
	Redelivery time.Duration
}

// Deps are the dependencies of a Recovery. All are required.
type Deps struct {
	Bus        Bus
	Workers    Workers
	Dispatcher Dispatcher
	Now        func() time.Time
	Log        *slog.Logger
}

// Recovery watches the streams of one bus. Every orchestrator runs one. A command that one orchestrator has sent again is not sent again by
// the others.
type Recovery struct {
	cfg  Config
	deps Deps
	// loss is the newest loss, noticed the time at which it was first seen, and done means that its commands are handled.
	loss    loss
	noticed time.Time
	done    bool
	// unread is the last time at which the streams could not be read.
	unread time.Time
	// ranges are the streams as they were in the last round, and shrunk is when one of them was found to have fewer messages than before.
	ranges map[event.Stream]bus.StreamRange
	shrunk time.Time
	// started is the time of the first round, and republished means that the commands from before the start are handled.
	started     time.Time
	republished bool
}

// loss is a time at which messages may have been lost. The zero value is none.
type loss struct {
	// at is the creation time of the newest stream, or the time at which something else was noticed.
	at time.Time
	// resultsOnly means that the stream of commands was not lost.
	resultsOnly bool
	// partial means that the streams are not new, but may lack messages: the servers have restarted, or have not confirmed commands.
	partial bool
}

// New returns a Recovery. The caller must call Run.
func New(cfg Config, deps Deps) *Recovery {
	return &Recovery{cfg: cfg, deps: deps, ranges: map[event.Stream]bus.StreamRange{}}
}

// Run watches until ctx ends.
func (r *Recovery) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.Every)
	defer tick.Stop()
	for {
		r.Round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Round checks the streams once. Errors are logged, and the next round tries again.
func (r *Recovery) Round(ctx context.Context) {
	if r.started.IsZero() {
		r.started = r.deps.Now()
	}
	if err := r.checkLoss(ctx); err != nil && ctx.Err() == nil {
		r.deps.Log.Warn("lost commands not sent again; retrying", "err", err)
	}
	if err := r.republish(ctx); err != nil && ctx.Err() == nil {
		r.deps.Log.Warn("commands not published again after the start; retrying", "err", err)
	}
}

// republish publishes commands that a killed orchestrator may have committed without publishing them, while the stream still drops
// duplicates. checkLoss handles commands from before the creation of the stream, because it asks workers what they execute.
func (r *Recovery) republish(ctx context.Context) error {
	since := r.deps.Now().Sub(r.started)
	if r.republished || since > event.DuplicateWindow {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	commands, err := r.deps.Bus.Range(asking, event.StreamCommands)
	if err != nil {
		r.deps.Log.Debug("streams cannot be read", "err", err)
		return nil
	}
	up, err := r.deps.Bus.Range(asking, memory)
	if err != nil {
		r.deps.Log.Debug("streams cannot be read", "err", err)
		return nil
	}
	// After a restart the server knows the ids of the messages it still holds, but not those of acknowledged commands. Their results are
	// redelivered first, which moves their operations on.
	if since < r.cfg.Redelivery && r.deps.Now().Sub(up.Created) < r.cfg.Redelivery {
		return nil
	}
	taken, err := r.deps.Workers.Taken(ctx)
	if err != nil {
		return err
	}
	n, err := r.deps.Dispatcher.AfterStart(ctx, commands.Created, heldBy(taken))
	if err != nil {
		return err
	}
	if n > 0 {
		r.deps.Log.Info("commands published again after the start; a killed orchestrator may not have published them", "commands", n)
	}
	r.republished = true
	return nil
}

// checkLoss sends lost commands again if a stream is new, or after a restart of the bus. The first check after the start also runs, because
// messages may have been lost before; it almost always finds no command that is older.
func (r *Recovery) checkLoss(ctx context.Context) error {
	newest, err := r.newest(ctx)
	now := r.deps.Now()
	if err != nil {
		r.deps.Log.Debug("streams cannot be read", "err", err) // the loop that creates the streams logs a warning
		r.unread = now
		return nil
	}
	if !newest.at.Equal(r.loss.at) {
		r.loss, r.noticed, r.done = newest, now, false
	}
	since := r.noticed
	if r.loss.partial && r.unread.After(since) {
		since = r.unread // a cluster without a leader may still store what it has received
	}
	if r.done || now.Sub(since) < r.cfg.Settle {
		return nil
	}
	taken, held, err := r.held(ctx)
	if err != nil {
		r.unread = r.deps.Now()
		if r.done = r.loss.partial && now.Sub(r.noticed) > event.DuplicateWindow; r.done {
			return fmt.Errorf("commands that the bus lacks wait for their limits: %w", err)
		}
		return err
	}
	waiting := now.Sub(r.noticed) < r.cfg.WorkerTimeout
	if len(taken.Silent) > 0 && waiting {
		return nil
	}
	before := r.loss.at
	if r.noticed.Before(before) {
		before = r.noticed // the clock of the bus is ahead of the clock of this orchestrator
	}
	n, unserved, err := r.deps.Dispatcher.AfterLoss(ctx, before, r.loss.resultsOnly, held)
	if err != nil {
		return err
	}
	if n > 0 {
		r.deps.Log.Info("lost commands sent again", "commands", n, "lost_before", r.loss.at)
	}
	r.done = unserved == 0 || !waiting
	return nil
}

// held returns what workers have taken, and a function that reports whether a command is not lost: a worker has it, or after a partial loss a
// stream has it or its result. Commands are looked for first, and results last: a command moves from its stream to a worker, and then to the results.
func (r *Recovery) held(ctx context.Context) (liveness.Taken, func(worker, commandID string) bool, error) {
	var commands, results map[string]bool
	var err error
	if r.loss.partial {
		if commands, err = r.stored(ctx, event.StreamCommands); err != nil {
			return liveness.Taken{}, nil, err
		}
	}
	taken, err := r.deps.Workers.Taken(ctx)
	if err != nil {
		return taken, nil, err
	}
	if r.loss.partial {
		if results, err = r.stored(ctx, event.StreamResults); err != nil {
			return taken, nil, err
		}
	}
	byWorker := heldBy(taken)
	return taken, func(worker, commandID string) bool {
		return byWorker(worker, commandID) || commands[commandID] || results[commandID]
	}, nil
}

// stored returns the ids of the commands that a stream holds, or whose results it holds.
func (r *Recovery) stored(ctx context.Context, name event.Stream) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.WorkerTimeout)
	defer cancel()
	ids, err := r.deps.Bus.MessageIDs(ctx, name)
	commands := make(map[string]bool, len(ids))
	for id := range ids {
		commands[event.CommandOf(id)] = true
	}
	return commands, err
}

// heldBy returns a function that reports whether a worker has a command. A worker that does not answer may have any of its commands.
func heldBy(taken liveness.Taken) func(worker, commandID string) bool {
	return func(worker, commandID string) bool { return taken.Silent[worker] || taken.Commands[commandID] }
}

// newest returns the newest loss. If the streams of commands and results were both lost, they are created shortly after each other. A server
// without a cluster creates the stage memory when it starts. In a cluster the memory remains, but its messages are numbered from 1 again.
func (r *Recovery) newest(ctx context.Context) (newest loss, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	for _, name := range []event.Stream{event.StreamCommands, event.StreamResults, memory} {
		stream, err := r.deps.Bus.Range(ctx, name)
		if err != nil {
			return loss{}, fmt.Errorf("look for new streams: %w", err)
		}
		if before := r.ranges[name]; stream.Created.Equal(before.Created) && stream.Last < before.Last {
			r.shrunk = r.deps.Now()
		}
		r.ranges[name] = stream
		isLater := stream.Created.Sub(newest.at) > r.cfg.Settle
		switch {
		case !stream.Created.After(newest.at):
		case name != memory:
			newest = loss{at: stream.Created, resultsOnly: name == event.StreamResults && isLater}
		case isLater:
			newest = loss{at: stream.Created, partial: true}
		}
	}
	for _, at := range []time.Time{r.shrunk, r.deps.Dispatcher.Lapsed()} {
		if at.Sub(newest.at) > r.cfg.Settle {
			newest = loss{at: at, partial: true}
		}
	}
	return newest, nil
}
