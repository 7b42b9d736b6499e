package service

import (
	"context"
	"log/slog"
	"time"
)

// Every calls f with the interval d until ctx ends, and then returns nil. It logs an error of f under the name what, and
// calls f again after the next interval.
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
