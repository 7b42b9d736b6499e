// Package retry repeats calls after temporary errors.
package retry

import (
	"context"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// Policy defines the number of retries and their delay.
type Policy struct {
	// More is the number of retries; 0 means none.
	More int
	// Pause is the delay before each retry.
	Pause time.Duration
}

// Do calls f and repeats it while its error is temporary (extclient.IsTemporary). It returns the last error of f, even if the context ends
// during a pause, because f's error is the cause.
func Do(ctx context.Context, p Policy, f func(ctx context.Context) error) error {
	for more := p.More; ; more-- {
		err := f(ctx)
		if err == nil || more <= 0 || !extclient.IsTemporary(err) || !Wait(ctx, p.Pause) {
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
