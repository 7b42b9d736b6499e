package extclient

import (
	"context"
	"time"
)

// Retry repeats calls after temporary errors, for callers that no engine repeats.
type Retry struct {
	// More is the number of retries; 0 means none.
	More int
	// Pause is the delay before each retry.
	Pause time.Duration
}

// Do calls f and repeats it while its error is temporary (IsTemporary). It returns the last error of f, even if the context ends
// during a pause, because f's error is the cause.
func (r Retry) Do(ctx context.Context, f func(ctx context.Context) error) error {
	for more := r.More; ; more-- {
		err := f(ctx)
		if err == nil || more <= 0 || !IsTemporary(err) || !Wait(ctx, r.Pause) {
			return err
		}
	}
}

// Wait waits for d. It returns false if the context ends before.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
