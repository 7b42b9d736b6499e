package testkit

import (
	"sync"
	"time"
)

// Clock is a clock that only moves when the test says so. It may be used from several goroutines.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows t0.
func NewClock(t0 time.Time) *Clock { return &Clock{now: t0} }

// Now is the time the clock shows. The method value fits a "Now func() time.Time" dependency.
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
