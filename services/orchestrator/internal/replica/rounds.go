package replica

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// shortest is the shortest time between two checks, so that events that come together cause one round.
const shortest = 20 * time.Millisecond

// Orders finds and locks orders.
type Orders interface {
	// Active returns the IDs of the orders that need rounds, the most important first.
	Active(ctx context.Context) ([]string, error)
	// Exclusively runs f unless another process runs it for this order. It reports whether f ran.
	Exclusively(ctx context.Context, id string, f func(ctx context.Context) error) (bool, error)
}

// RoundsConfig contains the settings of Rounds.
type RoundsConfig struct {
	// What is the kind of the orders, for log messages and keys.
	What string
	// Every is the pause after an error, and after a round in another process.
	Every time.Duration
	// Idle is the longest time between two checks. It covers an order whose process was killed.
	Idle time.Duration
	// Parallel is the number of rounds at the same time.
	Parallel int
	// Timeout limits one check for orders, and RoundTimeout one round.
	Timeout, RoundTimeout time.Duration
}

// Round runs one round of an order, and returns when the next is due.
type Round func(ctx context.Context, id string) (next time.Time, err error)

// Rounds runs the rounds of all orders of one kind.
type Rounds struct {
	cfg   RoundsConfig
	store Orders
	work  Round
	now   func() time.Time
	log   *slog.Logger
	wake  chan struct{}
}

// NewRounds returns Rounds. Run starts them.
func NewRounds(cfg RoundsConfig, store Orders, work Round, now func() time.Time, log *slog.Logger) *Rounds {
	return &Rounds{cfg: cfg, store: store, work: work, now: now, log: log, wake: make(chan struct{}, 1)}
}

// Wake causes a check of all orders soon. It never blocks.
func (r *Rounds) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// agenda contains when the orders are checked next.
type agenda struct {
	next map[string]time.Time // orders without a running round; absent means now
	busy map[string]bool      // orders with a running round; true if another must follow at once
	last map[string]time.Time // when the last round of an order began
}

// outcome is the result of a round.
type outcome struct {
	id   string
	next time.Time
}

// Run works until ctx ends. It returns when its rounds have ended.
func (r *Rounds) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	done := make(chan outcome, r.cfg.Parallel)
	a := agenda{next: map[string]time.Time{}, busy: map[string]bool{}, last: map[string]time.Time{}}
	pause := time.NewTimer(0)
	defer pause.Stop()
	hurried := false
	soon := func() {
		if !hurried { // otherwise a series of events would delay it again and again
			hurried = true
			pause.Reset(shortest)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			clear(a.next)
			for id := range a.busy {
				a.busy[id] = true
			}
			soon()
			continue
		case o := <-done:
			if again := a.busy[o.id]; !again {
				a.next[o.id] = o.next
			}
			delete(a.busy, o.id)
			soon()
			continue
		case <-pause.C:
		}
		hurried = false
		pause.Reset(r.look(ctx, &a, r.now(), func(id string) {
			running.Go(func() { done <- outcome{id: id, next: r.round(ctx, id)} })
		}))
	}
}

// look starts the rounds that are due, and returns the time until the next is due. Orders whose last round is longest ago come first, so that none
// waits for others that are always due.
func (r *Rounds) look(ctx context.Context, a *agenda, now time.Time, start func(id string)) time.Duration {
	limited, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	active, err := r.store.Active(limited)
	if err != nil {
		if ctx.Err() == nil {
			r.log.Warn("orders not checked", "kind", r.cfg.What, "err", err)
		}
		return r.cfg.Every
	}
	slices.SortStableFunc(active, func(x, y string) int { return a.last[x].Compare(a.last[y]) })
	wait, next, last := r.cfg.Idle, make(map[string]time.Time, len(active)), make(map[string]time.Time, len(active))
	for _, id := range active {
		last[id] = a.last[id]
		if _, busy := a.busy[id]; busy {
			continue
		}
		at := a.next[id]
		switch {
		case at.After(now):
			next[id] = at
			wait = min(wait, at.Sub(now))
		case len(a.busy) < r.cfg.Parallel:
			a.busy[id], last[id] = false, now
			start(id)
		}
	}
	a.next, a.last = next, last // drops the orders that have ended
	return max(wait, shortest)
}

// round runs one round of an order, and returns when the next is due.
func (r *Rounds) round(ctx context.Context, id string) time.Time {
	var next time.Time
	ctx, cancel := context.WithTimeout(ctx, r.cfg.RoundTimeout)
	defer cancel()
	ran, err := r.store.Exclusively(ctx, id, func(ctx context.Context) (err error) {
		next, err = r.work(ctx, id)
		return err
	})
	soon := r.now().Add(r.cfg.Every)
	if err != nil {
		if ctx.Err() == nil {
			r.log.Warn("order is resumed", r.cfg.What+"_id", id, "err", err)
		}
		return soon
	}
	if !ran {
		return soon
	}
	return next
}
