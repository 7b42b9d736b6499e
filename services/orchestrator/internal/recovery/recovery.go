// Package recovery has commands sent once more that nobody has got: those of all
// operations in flight when the bus has lost what it carried, because a stream
// was lost and made again; and when an orchestrator starts, those that one which
// was killed has committed and not published. The operations go on in seconds, and
// not when the execution limits of their steps are over.
package recovery

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
)

// Bus tells when streams were made.
type Bus interface {
	Created(ctx context.Context, name event.Stream) (time.Time, error)
}

// Workers tell what they are executing.
type Workers interface {
	Taken(ctx context.Context) (liveness.Taken, error)
}

// Dispatcher sends commands again.
type Dispatcher interface {
	// AfterLoss sends the commands again that were sent before a time at which the bus has lost them and their results, or the results
	// only; but not those that a worker still holds, and not those whose steps no worker serves, which it counts. It may be repeated.
	AfterLoss(ctx context.Context, before time.Time, resultsOnly bool, held func(worker, commandID string) bool) (sent, unserved int, err error)
	// AfterStart publishes the commands again, under the same ids, that were sent a moment ago and after a time since which the bus has
	// kept what it was given. It may be repeated.
	AfterStart(ctx context.Context, keptSince time.Time) (published int, err error)
}

// memory is the stream behind the stage memory. It goes with the server that holds it.
const memory = event.Stream("KV_" + event.StageBucket)

// Config is how a Recovery behaves. All are required.
type Config struct {
	// Every is the time between two looks at the streams, and Timeout bounds each; it is short, for a question that was asked before the
	// connection broke has no answer.
	Every, Timeout time.Duration
	// Settle is how long workers have to find the new streams, and to begin with or to give up what they had fetched from the old ones,
	// before they are asked what they execute.
	Settle time.Duration
	// Patience is how long it is waited for workers that do not say what they execute, or are not there. After it their commands are left
	// to the execution limit.
	Patience time.Duration
	// Redelivery is how long after a restart of the bus results come again that somebody had got before it.
	Redelivery time.Duration
}

// Deps is what a Recovery works with. All are required.
type Deps struct {
	Bus        Bus
	Workers    Workers
	Dispatcher Dispatcher
	Now        func() time.Time
	Log        *slog.Logger
}

// Recovery watches the streams of one bus. Every orchestrator runs one: what one has sent again the others find sent.
type Recovery struct {
	cfg  Config
	deps Deps
	// made is when the newest stream seen was made, noticed when it was seen first, and done tells that nothing is left to do about it.
	made, noticed time.Time
	done          bool
	// resultsOnly tells that the stream of commands is an older one.
	resultsOnly bool
	// started is when this orchestrator has begun to look, and republished tells that nothing is left to do about those before it.
	started     time.Time
	republished bool
}

// New returns a Recovery; Run makes it work.
func New(cfg Config, deps Deps) *Recovery { return &Recovery{cfg: cfg, deps: deps} }

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

// Round looks once. What fails is logged, and tried again in the next round.
func (r *Recovery) Round(ctx context.Context) {
	if r.started.IsZero() {
		r.started = r.deps.Now()
	}
	if err := r.look(ctx); err != nil && ctx.Err() == nil {
		r.deps.Log.Warn("lost commands not sent again, trying again", "err", err)
	}
	if err := r.republish(ctx); err != nil && ctx.Err() == nil {
		r.deps.Log.Warn("commands not published once more, trying again", "err", err)
	}
}

// republish repairs what a kill between a commit and its publication has left behind, as long as a stream drops what it has already. What
// was sent before the stream of commands was made is left to look, which asks workers what they execute.
func (r *Recovery) republish(ctx context.Context) error {
	since := r.deps.Now().Sub(r.started)
	if r.republished || since > event.DuplicateWindow {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	made, err := r.deps.Bus.Created(asking, event.StreamCommands)
	if err != nil {
		r.deps.Log.Debug("streams not seen", "err", err)
		return nil
	}
	up, err := r.deps.Bus.Created(asking, memory)
	if err != nil {
		r.deps.Log.Debug("streams not seen", "err", err)
		return nil
	}
	// A server that was restarted knows the ids of what it still holds, and not those of commands that were answered. The operations of these
	// have moved on once their results have come again.
	if since < r.cfg.Redelivery && r.deps.Now().Sub(up) < r.cfg.Redelivery {
		return nil
	}
	n, err := r.deps.Dispatcher.AfterStart(ctx, made)
	if err != nil {
		return err
	}
	if n > 0 {
		r.deps.Log.Info("commands published once more, for one that was killed may not have published them", "commands", n)
	}
	r.republished = true
	return nil
}

// look sees whether a stream is new. The first look after the start may find one that was made while nobody watched, and nearly always
// finds no command that is older than it.
func (r *Recovery) look(ctx context.Context) error {
	made, resultsOnly, err := r.newest(ctx)
	if err != nil {
		r.deps.Log.Debug("streams not seen", "err", err) // whoever keeps them tells, too
		return nil
	}
	now := r.deps.Now()
	if !made.Equal(r.made) {
		r.made, r.resultsOnly, r.noticed, r.done = made, resultsOnly, now, false
	}
	if r.done || now.Sub(r.noticed) < r.cfg.Settle {
		return nil
	}
	taken, err := r.deps.Workers.Taken(ctx)
	if err != nil {
		return err
	}
	patient := now.Sub(r.noticed) < r.cfg.Patience
	if len(taken.Silent) > 0 && patient {
		return nil
	}
	before := made
	if r.noticed.Before(made) {
		before = r.noticed // the clock of the bus is ahead of the one that tells when commands were sent
	}
	n, unserved, err := r.deps.Dispatcher.AfterLoss(ctx, before, r.resultsOnly, func(worker, commandID string) bool {
		return taken.Silent[worker] || taken.Commands[commandID]
	})
	if err != nil {
		return err
	}
	if n > 0 {
		r.deps.Log.Info("commands sent again that were lost with the streams", "commands", n, "created_at", made)
	}
	r.done = unserved == 0 || !patient
	return nil
}

// newest is when the newer one of the streams was made of which a loss stops operations, and whether it is that of the results alone.
// When both were lost one is made shortly after the other.
func (r *Recovery) newest(ctx context.Context) (newest time.Time, resultsOnly bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	for _, name := range []event.Stream{event.StreamCommands, event.StreamResults} {
		made, err := r.deps.Bus.Created(ctx, name)
		if err != nil {
			return time.Time{}, false, fmt.Errorf("look for new streams: %w", err)
		}
		if made.After(newest) {
			resultsOnly = name == event.StreamResults && made.Sub(newest) > r.cfg.Settle
			newest = made
		}
	}
	return newest, resultsOnly, nil
}
