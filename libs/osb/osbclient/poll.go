package osbclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kyma-project/keb/libs/osb"
)

// Poll polls an operation at the broker's interval until it has ended, and returns the result: succeeded or failed. It calls seen, unless
// that is nil, with every answer. A 410 means that the instance is gone, which is the success of a deletion. If the broker is
// unreachable or answers 5xx or 429, Poll retries until the context ends; then the error wraps that of the context and the
// last one.
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

// passing reports whether an error is temporary.
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
