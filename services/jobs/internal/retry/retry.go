// Package retry repeats calls that may work later.
package retry

import (
	"context"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// Policy says how often and when.
type Policy struct {
	// More is how often a call is repeated after the first time; 0 means never.
	More int
	// Pause is the time before each repetition.
	Pause time.Duration
}

// Do calls f, and again while its error is temporary (extclient.IsTemporary). It returns the last error of f, also when the
// context ends meanwhile: that is what went wrong.
func Do(ctx context.Context, p Policy, f func(ctx context.Context) error) error {
	for more := p.More; ; more-- {
		err := f(ctx)
		if err == nil || more <= 0 || !extclient.IsTemporary(err) || !Wait(ctx, p.Pause) {
			return err
		}
	}
}

// Wait waits for d. It is false if the context ended before.
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
