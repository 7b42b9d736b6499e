// Package housekeeping removes what the broker kept only for a while.
package housekeeping

import (
	"context"
	"log/slog"
	"time"
)

// Purger removes old rows.
type Purger interface {
	Purge(ctx context.Context, operationsBefore, tombstonesBefore time.Time) error
}

// Config says how long things are kept.
type Config struct {
	// Every is how often is cleaned up.
	Every time.Duration
	// Operations and Tombstones are how long the finished operations of instances that are gone, and the memory
	// of those instances, are kept.
	Operations, Tombstones time.Duration
}

// Run cleans up until ctx ends.
func Run(ctx context.Context, cfg Config, p Purger, log *slog.Logger, now func() time.Time) error {
	tick := time.NewTicker(cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := p.Purge(ctx, now().Add(-cfg.Operations), now().Add(-cfg.Tombstones)); err != nil && ctx.Err() == nil {
			log.Warn("clean-up failed, trying again", "err", err)
		}
	}
}
