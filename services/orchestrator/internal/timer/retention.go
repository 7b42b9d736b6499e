package timer

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/service"
)

const (
	// batchSize is the maximum number of operations per transaction.
	batchSize = 200
	// orchestrationBatch is the maximum number of orchestrations per transaction; one has up to 10,000 members.
	orchestrationBatch = 1
	// share limits the load: transactions use at most one part in share of the time.
	share = 10
	// timeout bounds a transaction.
	timeout = time.Minute
)

// Archive moves and deletes ended operations, orchestrations, and events from outside, oldest first, and returns their number.
type Archive interface {
	Archive(ctx context.Context, before time.Time, limit int) (int64, error)
	DropArchived(ctx context.Context, before time.Time, limit int) (int64, error)
	DropSignals(ctx context.Context, before time.Time, limit int) (int64, error)
	DropOrchestrations(ctx context.Context, before time.Time, limit int) (int64, error)
}

// RetentionConfig is the configuration of a Retention.
type RetentionConfig struct {
	// Every is the time between two rounds.
	Every time.Duration
	// Keep is the time from the end of an operation to its archiving, and KeepArchived the time from its end to its deletion. Orchestrations are
	// also deleted after KeepArchived.
	Keep, KeepArchived time.Duration
}

// Retention archives and deletes old operations.
type Retention struct {
	cfg     RetentionConfig
	store   Archive
	now     func() time.Time
	log     *slog.Logger
	moved   prometheus.Counter
	removed prometheus.Counter
}

// NewRetention returns a Retention. It registers the metrics with r unless r is nil.
func NewRetention(cfg RetentionConfig, s Archive, r prometheus.Registerer, now func() time.Time, log *slog.Logger) (*Retention, error) {
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

// Run runs rounds until ctx ends.
func (r *Retention) Run(ctx context.Context) error {
	return service.Every(ctx, r.cfg.Every, r.log, "archive operations", r.Round)
}

// Round archives and deletes all operations that are due. It pauses between batches to limit the load.
func (r *Retention) Round(ctx context.Context) error {
	moved, err := r.batches(ctx, r.store.Archive, batchSize, r.cfg.Keep, r.moved)
	if err != nil {
		return err
	}
	if _, err := r.batches(ctx, r.store.DropSignals, batchSize, event.SignalsKept, nil); err != nil {
		return err
	}
	removed, err := r.batches(ctx, r.store.DropArchived, batchSize, r.cfg.KeepArchived, r.removed)
	if moved > 0 || removed > 0 {
		r.log.Info("old operations archived", "archived", moved, "removed", removed)
	}
	if err != nil {
		return err
	}
	orchestrations, err := r.batches(ctx, r.store.DropOrchestrations, orchestrationBatch, r.cfg.KeepArchived, nil)
	if orchestrations > 0 {
		r.log.Info("old orchestrations removed", "removed", orchestrations)
	}
	return err
}

func (r *Retention) batches(
	ctx context.Context, f func(context.Context, time.Time, int) (int64, error), size int, keep time.Duration, counter prometheus.Counter,
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
		n, err := r.batch(ctx, f, size, before)
		if err != nil {
			return total, err
		}
		total += n
		if counter != nil {
			counter.Add(float64(n))
		}
		if n < int64(size) {
			return total, nil
		}
		pause.Reset((share - 1) * time.Since(start))
	}
}

func (r *Retention) batch(ctx context.Context, f func(context.Context, time.Time, int) (int64, error), size int, before time.Time) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return f(ctx, before, size)
}
