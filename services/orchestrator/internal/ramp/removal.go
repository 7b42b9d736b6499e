package ramp

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
)

// Workers returns the commands that workers execute.
type Workers interface {
	Taken(ctx context.Context) (liveness.Taken, error)
}

// Dispatcher sends commands again.
type Dispatcher interface {
	// AfterRamp sends the commands of operations again that were sent before a time to the ramped replicas of a worker. ramped reports whether
	// an operation went to them, and held whether a replica may have a command that was last sent at a time; that command is left to it. AfterRamp
	// returns the number of commands that were sent, and of those that are left.
	AfterRamp(ctx context.Context, worker string, before time.Time, ramped func(op *event.Operation, startedAt time.Time) bool, held func(commandID string, sentAt time.Time) bool) (
		sent, left int, err error)
}

// RemovalDeps are the dependencies of a Removal. All are required.
type RemovalDeps struct {
	Removed    func() []Ramp
	Workers    Workers
	Dispatcher Dispatcher
	// Purge deletes the commands for the ramped replicas of a worker from the bus. Those that a replica executes are not affected.
	Purge func(ctx context.Context, worker string) error
	// Drop deletes the removed ramps of a worker.
	Drop func(ctx context.Context, worker string) error
	Now  func() time.Time
	Log  *slog.Logger
}

// Removal completes the removal of ramps: commands that lie in the bus for ramped replicas go to the other replicas. Every orchestrator runs one.
type Removal struct {
	every time.Duration
	deps  RemovalDeps
	// purged holds the time of the last purge by worker, of the last round.
	purged map[string]time.Time
	// next is the time of the next round of a worker whose ramped replicas have executed commands for long.
	next map[string]time.Time
}

const (
	// promptFor is the time after a removal in which every round checks the worker. Later only those commands are left that ramped replicas
	// execute, and a round every laterEvery is enough.
	promptFor  = 30 * time.Second
	laterEvery = 10 * time.Second
)

// NewRemoval returns a Removal with a time between two rounds. The caller must call Run.
func NewRemoval(every time.Duration, deps RemovalDeps) *Removal {
	return &Removal{every: every, deps: deps, purged: map[string]time.Time{}, next: map[string]time.Time{}}
}

// Run completes removals until ctx ends.
func (r *Removal) Run(ctx context.Context) error {
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		r.round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// round handles each worker with removed ramps. Errors are logged, and the next round tries again.
func (r *Removal) round(ctx context.Context) {
	byWorker := map[string][]Ramp{}
	for _, one := range r.deps.Removed() {
		byWorker[one.Worker] = append(byWorker[one.Worker], one)
	}
	for worker := range r.purged {
		if byWorker[worker] == nil {
			delete(r.purged, worker)
			delete(r.next, worker)
		}
	}
	for worker, ramps := range byWorker {
		if err := r.complete(ctx, worker, ramps); err != nil && ctx.Err() == nil {
			r.deps.Log.Warn("commands of removed ramps not sent to other replicas; retrying", "worker", worker, "err", err)
		}
	}
}

// complete first deletes the commands from the bus, so that no ramped replica gets them any more. Its next round sends those again that no
// replica has fetched.
func (r *Removal) complete(ctx context.Context, worker string, ramps []Ramp) error {
	now, removed, before := r.deps.Now(), ramps[0].RemovedAt, time.Time{}
	for i := range ramps {
		at := ramps[i].RemovedAt
		if at.Before(removed) {
			removed = at
		}
		if t := at.Add(Settle); t.After(before) {
			before = t
		}
	}
	if now.Before(before) || now.Before(r.next[worker]) {
		return nil
	}
	if err := r.deps.Purge(ctx, worker); err != nil {
		return err
	}
	if r.purged[worker].IsZero() {
		r.purged[worker] = now
		return nil
	}
	taken, err := r.deps.Workers.Taken(ctx)
	if err != nil {
		return err
	}
	sent, left, err := r.deps.Dispatcher.AfterRamp(ctx, worker, before, func(op *event.Operation, startedAt time.Time) bool {
		return Version(ramps, op, worker, startedAt) != ""
	}, func(commandID string, sentAt time.Time) bool {
		silent := event.Ramped(worker)
		if sentAt.After(removed) { // it may have gone to another replica
			silent = worker
		}
		return taken.Silent[silent] || taken.Commands[commandID]
	})
	if sent > 0 {
		r.deps.Log.Info("commands of removed ramps sent to other replicas", "worker", worker, "commands", sent)
	}
	switch {
	case err != nil:
		return err
	case left == 0:
		if err := r.deps.Drop(ctx, worker); err != nil {
			return fmt.Errorf("complete the removal: %w", err)
		}
	case now.Sub(before) > promptFor:
		r.next[worker] = now.Add(laterEvery)
	}
	return nil
}
