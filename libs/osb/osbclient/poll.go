package osbclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kyma-project/keb/libs/osb"
)

// Poll asks for an operation until it has ended, waiting between as the broker says, and returns how it ended: succeeded
// or failed. It tells seen about every answer unless seen is nil. Answers of 410 mean that the instance is gone, which
// is how a deletion ends: succeeded. A broker that cannot be reached, or answers 5xx or 429, is asked again until the
// context ends; then the error wraps the context's and what went wrong last.
func (c *Client) Poll(ctx context.Context, instanceID, operation string, seen func(osb.LastOperation)) (*osb.LastOperation, error) {
	for {
		last, err := c.LastOperation(ctx, instanceID, operation)
		wait := c.cfg.PollEvery
		switch {
		case IsGone(err):
			last = &osb.LastOperation{State: osb.StateSucceeded}
			if seen != nil {
				seen(*last)
			}
			return last, nil
		case err != nil && !passing(err):
			return nil, err
		case err != nil:
			if e, ok := errors.AsType[*osb.Error](err); ok && e.RetryAfter > 0 {
				wait = e.RetryAfter
			}
		default:
			if seen != nil {
				seen(*last)
			}
			if last.State != osb.StateInProgress {
				return last, nil
			}
			if last.RetryAfter > 0 {
				wait = last.RetryAfter
			}
		}
		if c.cfg.PollAtMost > 0 {
			wait = min(wait, c.cfg.PollAtMost)
		}
		if e := pause(ctx, wait); e != nil {
			return nil, fmt.Errorf("poll: %w", errors.Join(e, err))
		}
	}
}

// passing tells whether it makes sense to ask again after an error.
func passing(err error) bool {
	e, ok := errors.AsType[*osb.Error](err)
	return !ok || e.Status >= http.StatusInternalServerError || e.Status == http.StatusTooManyRequests
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
