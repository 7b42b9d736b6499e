package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// ExtendExecution asks the orchestrator for more time: the step may run for d from now on. It returns the granted time limit, which may be
// earlier, because the budget of the step (retry.timeout, or wait.timeout while it waits) bounds it, as does the time limit of the operation. The
// context of Run and all contexts derived from it then end at that limit, and a killed worker does not shorten it. It returns an error if no time
// is granted: the budget is spent, the operation is to be cancelled, the orchestrator did not answer within 10 s, or it is of a release without
// this request. The previous limit then stays. Call it well before the limit; more often than every few seconds is a waste.
func (op Operation) ExtendExecution(ctx context.Context, d time.Duration) (time.Time, error) {
	s := op.session
	if s == nil {
		return time.Time{}, ErrNoSession
	}
	if s.x.Extend == nil {
		return time.Time{}, errors.New("extend the execution: this worker is not connected to an orchestrator")
	}
	request := event.ExtendRequest{CommandRef: event.CommandRef{OperationID: op.ID, Cursor: s.x.Command.Cursor}, Seconds: d.Seconds()}
	if err := request.Validate(); err != nil {
		return time.Time{}, fmt.Errorf("extend the execution by %s: %w", d, err)
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	until, err := s.x.Extend(ctx, request)
	if err != nil {
		return time.Time{}, own(fmt.Errorf("extend the execution: %w", err))
	}
	s.limit.extend(until.Sub(s.now()))
	return until, nil
}

// limitedContext is a context with a time limit that can be extended. It ends like one of context.WithTimeoutCause with the cause ErrTimeLimit.
type limitedContext struct {
	context.Context // ends with a cause

	end  context.CancelCauseFunc
	done chan struct{} // another channel than that of Context, so that derived contexts ask for Err

	mu       sync.Mutex
	deadline time.Time
	timer    *time.Timer
}

func newLimited(parent context.Context, limit time.Duration) (*limitedContext, context.CancelFunc) {
	c := &limitedContext{done: make(chan struct{}), deadline: time.Now().Add(limit)}
	c.Context, c.end = context.WithCancelCause(parent)
	stop := context.AfterFunc(c.Context, func() { close(c.done) })
	c.mu.Lock()
	c.timer = time.AfterFunc(limit, c.expire)
	c.mu.Unlock()
	return c, func() {
		c.timer.Stop()
		if stop() {
			close(c.done)
		}
		c.end(context.Canceled)
	}
}

// expire ends the context, unless the limit was extended meanwhile.
func (c *limitedContext) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := time.Until(c.deadline); left > 0 {
		c.timer.Reset(left)
		return
	}
	c.end(ErrTimeLimit)
}

// extend moves the limit, and never to an earlier time.
func (c *limitedContext) extend(left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if deadline := time.Now().Add(left); deadline.After(c.deadline) {
		c.deadline = deadline
	}
}

// Deadline returns the current limit, or that of the parent if it is earlier.
func (c *limitedContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if outer, ok := c.Context.Deadline(); ok && outer.Before(c.deadline) {
		return outer, true
	}
	return c.deadline, true
}

// Done implements context.Context.
func (c *limitedContext) Done() <-chan struct{} { return c.done }

// Err implements context.Context.
func (c *limitedContext) Err() error {
	select {
	case <-c.done:
	default:
		return nil
	}
	if errors.Is(context.Cause(c.Context), ErrTimeLimit) {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// AfterFunc spares derived contexts a goroutine, see package context.
func (c *limitedContext) AfterFunc(f func()) func() bool {
	return context.AfterFunc(c.Context, func() {
		<-c.done
		f()
	})
}
