// Package retention keeps the tables that every statement reads small: it moves operations that ended long ago into the
// archive, and removes from there what is older still.
package retention

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/service"
)

const (
	// atOnce is how many operations a transaction moves or removes.
	atOnce = 200
	// share is which part of the time may go into it: one in so many.
	share = 10
	// limit bounds a transaction.
	limit = time.Minute
)

// Store moves and removes operations that have ended, the oldest first, and says how many.
type Store interface {
	Archive(ctx context.Context, before time.Time, limit int) (int64, error)
	DropArchived(ctx context.Context, before time.Time, limit int) (int64, error)
}

// Config says how long operations are kept that have ended.
type Config struct {
	// Every is the time between two rounds.
	Every time.Duration
	// Keep is how long after its end an operation is archived, and KeepArchived how long after its end it is removed.
	Keep, KeepArchived time.Duration
}

// Retention works on a store.
type Retention struct {
	cfg     Config
	store   Store
	now     func() time.Time
	log     *slog.Logger
	moved   prometheus.Counter
	removed prometheus.Counter
}

// New registers the metrics, if there is a registerer.
func New(cfg Config, s Store, r prometheus.Registerer, now func() time.Time, log *slog.Logger) (*Retention, error) {
	out := &Retention{
		cfg: cfg, store: s, now: now, log: log,
		moved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "keb_operations_archived_total", Help: "Operations that ended long ago and were moved to the archive.",
		}),
		removed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "keb_operations_removed_total", Help: "Archived operations that were removed for good.",
		}),
	}
	if r == nil {
		return out, nil
	}
	for _, c := range []prometheus.Collector{out.moved, out.removed} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of the archive: %w", err)
		}
	}
	return out, nil
}

// Run works until ctx ends.
func (r *Retention) Run(ctx context.Context) error {
	return service.Every(ctx, r.cfg.Every, r.log, "archive operations", r.Round)
}

// Round archives and removes all that is due. It pauses in between, so that others are not kept from their work.
func (r *Retention) Round(ctx context.Context) error {
	moved, err := r.all(ctx, r.store.Archive, r.cfg.Keep, r.moved)
	if err != nil {
		return err
	}
	removed, err := r.all(ctx, r.store.DropArchived, r.cfg.KeepArchived, r.removed)
	if moved > 0 || removed > 0 {
		r.log.Info("old operations archived", "archived", moved, "removed", removed)
	}
	return err
}

func (r *Retention) all(
	ctx context.Context, some func(context.Context, time.Time, int) (int64, error), keep time.Duration, counter prometheus.Counter,
) (total int64, err error) {
	before := r.now().Add(-keep)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return total, ctx.Err()
		case <-pause.C:
		}
		start := time.Now()
		n, err := r.some(ctx, some, before)
		if err != nil {
			return total, err
		}
		total += n
		counter.Add(float64(n))
		if n < atOnce {
			return total, nil
		}
		pause.Reset((share - 1) * time.Since(start))
	}
}

func (r *Retention) some(ctx context.Context, f func(context.Context, time.Time, int) (int64, error), before time.Time) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx, before, atOnce)
}
