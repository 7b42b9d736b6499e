package service

import (
	"context"
	"log/slog"
	"time"
)

// Every calls f each time that d has passed, until ctx ends, and then returns nil. An error of f is logged under what, and f is
// called again when its time comes.
func Every(ctx context.Context, d time.Duration, log *slog.Logger, what string, f func(ctx context.Context) error) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := f(ctx); err != nil && ctx.Err() == nil {
			log.Warn("background work failed, trying again", "work", what, "err", err)
		}
	}
}
