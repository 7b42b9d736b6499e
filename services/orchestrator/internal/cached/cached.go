// Package cached keeps answers that many ask for and that cost something to
// find.
package cached

import (
	"context"
	"fmt"
	"time"
)

const (
	// freshness is how old an answer may be at least, and freshShare which part of the time may go into finding it: one in so many;
	// but none is older than stale.
	freshness  = 2 * time.Second
	freshShare = 10
	stale      = 30 * time.Second
)

// Value is an answer that is found once for all who ask. The longer that takes, the older it may be. It is safe for
// concurrent use.
type Value[T any] struct {
	find func(ctx context.Context) (T, error)
	// turn holds one token, for who reads or finds: unlike a mutex it can be waited for with a deadline.
	turn  chan struct{}
	value T
	until time.Time
}

// New returns a Value that is found by find. Nobody else is answered while it runs, so it must end with its context.
func New[T any](find func(ctx context.Context) (T, error)) *Value[T] {
	return &Value[T]{find: find, turn: make(chan struct{}, 1)}
}

// Get returns the answer, which the caller must not change. Who waits for somebody else to find it waits no longer than ctx. Who finds
// it does so until his deadline, even if nobody waits for him any more: it is for others, too.
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
	found, cancel := context.WithoutCancel(ctx), context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		found, cancel = context.WithDeadline(found, deadline)
	}
	defer cancel()
	value, err := v.find(found)
	if err != nil {
		return none, err
	}
	end := time.Now()
	v.value, v.until = value, end.Add(min(max(freshness, freshShare*end.Sub(start)), stale))
	return value, nil
}
