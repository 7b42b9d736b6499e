package census

import (
	"context"
	"fmt"
	"time"
)

const (
	// minTTL is the minimum time to live of a value: a hang or a missing worker is visible soon. A slow value lives longer, so that reading uses at most one part in loadShare of the
	// time. No value lives longer than maxTTL.
	minTTL    = time.Second
	loadShare = 10
	maxTTL    = 30 * time.Second
)

// Value caches an expensive value for all callers. Its time to live grows with the time that reading it takes. It is safe for concurrent
// use.
type Value[T any] struct {
	read func(ctx context.Context) (T, error)
	// lock is a mutex that can be acquired with a deadline.
	lock  chan struct{}
	value T
	until time.Time
}

// NewValue returns a Value that calls read. All callers wait for read, so it must return when its context ends.
func NewValue[T any](read func(ctx context.Context) (T, error)) *Value[T] {
	return &Value[T]{read: read, lock: make(chan struct{}, 1)}
}

// Get returns the value, which the caller must not modify. While another caller reads, Get waits until its ctx ends. The reading caller
// continues until its deadline even if its ctx is cancelled, because other callers wait for the value.
func (v *Value[T]) Get(ctx context.Context) (T, error) {
	var none T
	select {
	case v.lock <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("wait for an answer: %w", ctx.Err())
	}
	defer func() { <-v.lock }()
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
	v.value, v.until = value, end.Add(min(max(minTTL, loadShare*end.Sub(start)), maxTTL))
	return value, nil
}
