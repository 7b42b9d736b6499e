// Package timer sweeps: it drains the outbox, takes up operations whose time
// has come, because they waited for it or because no worker has answered, and
// starts pending operations that a lost wake-up would leave behind. It remembers
// one time, not one per operation.
package timer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Looker asks in one statement whether there is anything to do.
type Looker interface {
	Look(ctx context.Context) (store.Look, error)
}

// Dispatcher does what is due.
type Dispatcher interface {
	Drain(ctx context.Context) error
	Due(ctx context.Context) (int, error)
	Admit(ctx context.Context) error
	PublishFacts(ctx context.Context) error
}

// Config is how often a Timer looks.
type Config struct {
	// Every is the longest time between two sweeps.
	Every time.Duration
	// Patience is how long the database may take to say what there is to do; zero means no limit.
	Patience time.Duration
}

// Timer runs the sweeps of one orchestrator.
type Timer struct {
	cfg    Config
	looker Looker
	now    func() time.Time
	log    *slog.Logger

	mu   sync.Mutex
	next time.Time
	wake chan struct{}
}

// shortest keeps many operations that are due one after the other from making a sweep each.
const shortest = 2 * time.Millisecond

// New returns a Timer; Run starts it. The Dispatcher is given to Run because it calls Wake.
func New(cfg Config, looker Looker, now func() time.Time, log *slog.Logger) *Timer {
	return &Timer{cfg: cfg, looker: looker, now: now, log: log, wake: make(chan struct{}, 1)}
}

// Wake makes sure that a sweep happens at that time or before.
func (t *Timer) Wake(at time.Time) {
	t.mu.Lock()
	earlier := t.next.IsZero() || at.Before(t.next)
	if earlier {
		t.next = at
	}
	t.mu.Unlock()
	if !earlier {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run sweeps until ctx ends. A sweep that fails is logged and followed by the next one.
func (t *Timer) Run(ctx context.Context, d Dispatcher) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	last := t.now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.wake:
			pause.Reset(t.until(last))
			continue
		case <-pause.C:
		}
		last = t.now()
		t.mu.Lock()
		t.next = time.Time{}
		t.mu.Unlock()
		if err := t.Sweep(ctx, d); err != nil && ctx.Err() == nil {
			t.log.Warn("sweep failed", "err", err)
		}
		pause.Reset(t.until(last))
	}
}

// until is the time to the next sweep.
func (t *Timer) until(last time.Time) time.Duration {
	t.mu.Lock()
	next := t.next
	t.mu.Unlock()
	now := t.now()
	wait := last.Add(t.cfg.Every).Sub(now)
	if !next.IsZero() {
		wait = min(wait, next.Sub(now))
	}
	return max(wait, shortest)
}

// Sweep does once what is due now. A part that fails does not keep the others from being done, unless the bus is away: then nothing more
// is taken up, since none of its commands would go out.
func (t *Timer) Sweep(ctx context.Context, d Dispatcher) error {
	look, err := t.look(ctx)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	var failed []error
	fails := func(err error) (away bool) {
		if err == nil {
			return false
		}
		failed = append(failed, err)
		publish, ok := errors.AsType[*bus.PublishError](err)
		return ok && publish.Away()
	}
	if fails(d.Drain(ctx)) {
		return fmt.Errorf("sweep: %w", errors.Join(failed...))
	}
	now := t.now()
	held := false
	if due(look.NextDue, now) || due(look.NextUnanswered, now) {
		n, err := d.Due(ctx)
		if fails(err) {
			return fmt.Errorf("sweep: %w", errors.Join(failed...))
		}
		// Only the earliest time was known; the one after it is found now, not a whole sweep later.
		if held = n == 0 || err != nil; !held {
			if look, err = t.look(ctx); err != nil {
				return fmt.Errorf("sweep: %w", err)
			}
			now = t.now()
		}
	}
	// What is due and was not taken up is held by another orchestrator.
	if !held && !look.NextDue.IsZero() && look.NextDue.Before(now.Add(t.cfg.Every)) {
		t.Wake(look.NextDue)
	}
	if look.Pending {
		fails(d.Admit(ctx))
	}
	fails(d.PublishFacts(ctx)) // last: operations do not wait for it
	if len(failed) > 0 {
		return fmt.Errorf("sweep: %w", errors.Join(failed...))
	}
	return nil
}

func (t *Timer) look(ctx context.Context) (store.Look, error) {
	if t.cfg.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.cfg.Patience)
		defer cancel()
	}
	return t.looker.Look(ctx)
}

func due(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }
