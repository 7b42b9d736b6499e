package operatorapi

import (
	"context"
	"sync"
	"time"
)

const (
	// freshness is how old an answer may be at least, and freshShare which part of the time may go into finding it: one in so many.
	freshness  = 2 * time.Second
	freshShare = 10
)

// cached is an answer that many ask for, and that is found once for all of them. The longer that takes, the older it may be.
// The zero value is ready.
type cached[T any] struct {
	mu    sync.Mutex
	value T
	until time.Time
}

func (c *cached[T]) get(ctx context.Context, find func(ctx context.Context) (T, error)) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	start := time.Now()
	if start.Before(c.until) {
		return c.value, nil
	}
	value, err := find(ctx)
	if err != nil {
		var none T
		return none, err
	}
	end := time.Now()
	c.value, c.until = value, end.Add(max(freshness, freshShare*end.Sub(start)))
	return value, nil
}
