// Package recovery notices that the bus has lost what it carried, because a
// stream was lost and made again, and has the commands of the operations in
// flight sent once more: they go on in seconds, and not when the execution
// limits of their steps are over.
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
	// Lost sends the commands again that were sent before a time, but not those that are left to a worker.
	Lost(ctx context.Context, before time.Time, left func(worker, commandID string) bool) (int, error)
}

// Config is how a Recovery behaves. All are required.
type Config struct {
	// Every is the time between two looks at the streams, and Timeout bounds each; it is short, for a question that was asked before the
	// connection broke has no answer.
	Every, Timeout time.Duration
	// Settle is how long workers have to find the new streams, and to begin with or to give up what they had fetched from the old ones,
	// before they are asked what they execute.
	Settle time.Duration
	// Patience is how long it is waited for workers that do not say what they execute. After it their commands are left to the execution
	// limit.
	Patience time.Duration
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
	// made is the newest stream seen, noticed when it was seen first, and done tells that nothing is left to do about it.
	made, noticed time.Time
	done          bool
}

// New returns a Recovery; Run makes it work.
func New(cfg Config, deps Deps) *Recovery { return &Recovery{cfg: cfg, deps: deps} }

// Run watches until ctx ends.
func (r *Recovery) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.Every)
	defer tick.Stop()
	for {
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			r.deps.Log.Warn("lost commands not sent again, trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look sees whether a stream is new. The first look after the start may find one that was made while nobody watched, and nearly always
// finds no command that is older than it.
func (r *Recovery) look(ctx context.Context) error {
	made, err := r.newest(ctx)
	if err != nil {
		r.deps.Log.Debug("streams not seen", "err", err) // whoever keeps them tells, too
		return nil
	}
	now := r.deps.Now()
	if !made.Equal(r.made) {
		r.made, r.noticed, r.done = made, now, false
	}
	if r.done || now.Sub(r.noticed) < r.cfg.Settle {
		return nil
	}
	taken, err := r.deps.Workers.Taken(ctx)
	if err != nil {
		return err
	}
	if len(taken.Silent) > 0 && now.Sub(r.noticed) < r.cfg.Patience {
		return nil
	}
	n, err := r.deps.Dispatcher.Lost(ctx, made, func(worker, commandID string) bool {
		return taken.Silent[worker] || taken.Commands[commandID]
	})
	if err != nil {
		return err
	}
	if n > 0 {
		r.deps.Log.Info("commands sent again that were lost with the streams", "commands", n, "created_at", made)
	}
	r.done = true
	return nil
}

// newest is when the newer one of the streams was made of which a loss stops operations.
func (r *Recovery) newest(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	var newest time.Time
	for _, name := range []event.Stream{event.StreamCommands, event.StreamResults} {
		made, err := r.deps.Bus.Created(ctx, name)
		if err != nil {
			return time.Time{}, fmt.Errorf("look for new streams: %w", err)
		}
		if made.After(newest) {
			newest = made
		}
	}
	return newest, nil
}
