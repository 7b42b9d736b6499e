// Package housekeeping removes what the broker kept only for a while.
package housekeeping

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/service"
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
	return service.Every(ctx, cfg.Every, log, "clean-up", func(ctx context.Context) error {
		return p.Purge(ctx, now().Add(-cfg.Operations), now().Add(-cfg.Tombstones))
	})
}
