package testkit

import (
	"sync"
	"time"
)

// Clock is a clock that only Advance moves. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock with the time t0.
func NewClock(t0 time.Time) *Clock { return &Clock{now: t0} }

// Now returns the time of the clock. The method value is a "Now func() time.Time" dependency.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock by d.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
