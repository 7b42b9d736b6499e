// Package housekeeping deletes data of the broker after its retention time, and seals its secrets anew with the current key.
package housekeeping

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/service"
)

// Purger deletes old rows.
type Purger interface {
	Purge(ctx context.Context, operationsBefore, tombstonesBefore time.Time) error
}

// Config holds the retention times.
type Config struct {
	// Every is the interval of the clean-up.
	Every time.Duration
	// Operations is the retention time of finished operations of removed instances; Tombstones is that of the records of removed
	// instances.
	Operations, Tombstones time.Duration
}

// Run cleans up until ctx ends.
func Run(ctx context.Context, cfg Config, p Purger, log *slog.Logger, now func() time.Time) error {
	return service.Every(ctx, cfg.Every, log, "clean-up", func(ctx context.Context) error {
		return p.Purge(ctx, now().Add(-cfg.Operations), now().Add(-cfg.Tombstones))
	})
}
