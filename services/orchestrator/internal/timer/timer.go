// Package timer runs sweeps. A sweep drains the outbox, wakes operations that are
// due or whose command was not answered, starts pending operations that a lost
// wake-up would leave waiting, and records which facts are published. The timer keeps
// one time, not one per operation. Retention moves old ended operations to the
// archive, and later deletes them from there.
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

// Store reads the work of the next sweep with one statement.
type Store interface {
	SweepStatus(ctx context.Context, now time.Time, whole bool) (store.SweepStatus, error)
}

// Dispatcher carries out the parts of a sweep.
type Dispatcher interface {
	Drain(ctx context.Context) error
	ReleaseHeld(ctx context.Context) error
	DeliverSignals(ctx context.Context) error
	// WakeGrants starts a round of grants in the background.
	WakeGrants()
	// Due wakes operations that are due, and, if unanswered is set, those whose command was not answered. It returns their number.
	Due(ctx context.Context, unanswered bool) (int, error)
	Admit(ctx context.Context) error
	// RecordFacts records which facts are published. It logs errors.
	RecordFacts(ctx context.Context)
}

// Config is the configuration of a Timer.
type Config struct {
	// Every is the maximum time between two sweeps.
	Every time.Duration
	// Timeout bounds the query for the work of a sweep; zero means no limit.
	Timeout time.Duration
}

// Timer runs the sweeps of one orchestrator.
type Timer struct {
	cfg   Config
	store Store
	now   func() time.Time
	log   *slog.Logger

	mu   sync.Mutex
	next time.Time
	wake chan struct{}

	// wholeAt is the time of the last whole status, and unanswered its NextUnanswered. Operations that become due wake the timer many times a
	// second; what a whole status finds in addition can wait for Every.
	wholeAt, unanswered time.Time
}

// minPause is the minimum time between two sweeps. It combines operations that are due shortly after each other.
const minPause = 2 * time.Millisecond

// New returns a Timer. The caller must call Run. The Dispatcher is an argument of Run, because it calls Wake.
func New(cfg Config, s Store, now func() time.Time, log *slog.Logger) *Timer {
	return &Timer{cfg: cfg, store: s, now: now, log: log, wake: make(chan struct{}, 1)}
}

// Wake makes sure that a sweep starts no later than at.
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

// Run sweeps until ctx ends. It logs errors and continues with the next sweep.
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

// until returns the time until the next sweep.
func (t *Timer) until(last time.Time) time.Duration {
	t.mu.Lock()
	next := t.next
	t.mu.Unlock()
	now := t.now()
	wait := last.Add(t.cfg.Every).Sub(now)
	if !next.IsZero() {
		wait = min(wait, next.Sub(now))
	}
	return max(wait, minPause)
}

// Sweep runs one sweep. After an error in one part it continues with the others, unless the bus is unavailable: then it stops, because no
// command could be published.
func (t *Timer) Sweep(ctx context.Context, d Dispatcher) error {
	status, err := t.status(ctx)
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
	if status.Held && fails(d.ReleaseHeld(ctx)) {
		return fmt.Errorf("sweep: %w", errors.Join(failed...))
	}
	if status.Signalled && fails(d.DeliverSignals(ctx)) {
		return fmt.Errorf("sweep: %w", errors.Join(failed...))
	}
	now := t.now()
	locked, pending, limited := false, status.Pending, status.Limited
	if unanswered := due(status.NextUnanswered, now); unanswered || due(status.NextDue, now) {
		n, err := d.Due(ctx, unanswered)
		if fails(err) {
			return fmt.Errorf("sweep: %w", errors.Join(failed...))
		}
		// The status has only the earliest time. The next one is read now instead of in the next sweep.
		if locked = n == 0 || err != nil; !locked {
			if status, err = t.status(ctx); err != nil {
				return fmt.Errorf("sweep: %w", err)
			}
			now = t.now()
		}
	}
	// Due operations that were not found are locked by another orchestrator.
	for _, next := range []time.Time{status.NextDue, status.NextUnanswered} {
		if !locked && !next.IsZero() && next.Before(now.Add(t.cfg.Every)) {
			t.Wake(next)
		}
	}
	if limited || status.Limited {
		d.WakeGrants()
	}
	if pending || status.Pending {
		fails(d.Admit(ctx))
	}
	d.RecordFacts(ctx) // late, because operations do not wait for facts
	if len(failed) > 0 {
		return fmt.Errorf("sweep: %w", errors.Join(failed...))
	}
	return nil
}

func (t *Timer) status(ctx context.Context) (store.SweepStatus, error) {
	now := t.now()
	whole := t.wholeAt.IsZero() || now.Before(t.wholeAt) || now.Sub(t.wholeAt) >= t.cfg.Every || due(t.unanswered, now)
	status, err := t.read(ctx, now, whole)
	switch {
	case err != nil:
	case whole:
		t.wholeAt, t.unanswered = now, status.NextUnanswered
	default:
		status.NextUnanswered = t.unanswered
	}
	return status, err
}

func (t *Timer) read(ctx context.Context, now time.Time, whole bool) (store.SweepStatus, error) {
	if t.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.cfg.Timeout)
		defer cancel()
	}
	return t.store.SweepStatus(ctx, now, whole)
}

func due(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }
