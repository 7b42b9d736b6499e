package census

import (
	"context"
	"fmt"
	"time"
)

const (
	// freshness is how old an answer may always be. A slow answer may be older, so that at most one part in freshShare of the time goes
	// into reading it; but none is older than stale.
	freshness  = 2 * time.Second
	freshShare = 10
	stale      = 30 * time.Second
)

// Value is an answer that is expensive to read and is shared by all callers. The longer it takes to read, the older it may be. It is safe
// for concurrent use.
type Value[T any] struct {
	read func(ctx context.Context) (T, error)
	// turn holds one token for the caller that reads or looks: unlike a mutex it can be awaited with a deadline.
	turn  chan struct{}
	value T
	until time.Time
}

// NewValue returns a Value that read reads. No other caller gets an answer meanwhile, so read must end with its context.
func NewValue[T any](read func(ctx context.Context) (T, error)) *Value[T] {
	return &Value[T]{read: read, turn: make(chan struct{}, 1)}
}

// Get returns the answer, which the caller must not modify. A caller that waits for another one to read it waits no longer than ctx. The
// caller that reads continues until its deadline even if its ctx is cancelled: the answer is for the others, too.
func (v *Value[T]) Get(ctx context.Context) (T, error) {
	var none T
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("wait for an answer: %w", ctx.Err())
	}
	defer func() { <-v.turn }()
	start := time.Now()
	if start.Before(v.until) {
		return v.value, nil
	}
	reading, cancel := context.WithoutCancel(ctx), context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		reading, cancel = context.WithDeadline(reading, deadline)
	}
	defer cancel()
	value, err := v.read(reading)
	if err != nil {
		return none, err
	}
	end := time.Now()
	v.value, v.until = value, end.Add(min(max(freshness, freshShare*end.Sub(start)), stale))
	return value, nil
}
