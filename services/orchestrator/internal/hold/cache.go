package hold

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/replica"
)

// Store reads holds.
type Store interface {
	// Holds returns all holds, oldest first.
	Holds(ctx context.Context) ([]Hold, error)
	// DropEndedHolds deletes the holds that have ended by themselves.
	DropEndedHolds(ctx context.Context, now time.Time) error
}

// Version tells one set of holds from another.
type Version struct {
	Count int
	// Newest is when the newest hold was created, in microseconds since 1970; 0 if there is none.
	Newest int64
}

// Cache keeps the holds in memory. It is safe for concurrent use.
type Cache struct {
	*replica.Follower

	// timeout bounds a read.
	timeout time.Duration
	store   Store
	now     func() time.Time
	// wake is called with the time at which held operations may be released.
	wake func(at time.Time)

	holds atomic.Pointer[[]Hold]
}

// NewCache returns an empty Cache. The caller must call Load or Refresh before the holds apply, and Run.
func NewCache(timeout time.Duration, s Store, nc *nats.Conn, now func() time.Time, wake func(at time.Time), log *slog.Logger) *Cache {
	c := &Cache{timeout: timeout, store: s, now: now, wake: wake}
	c.holds.Store(&[]Hold{})
	c.Follower = replica.NewFollower("holds", event.NoticeHolds, c.Refresh, nc, log)
	return c
}

// Match returns the id of the oldest hold whose scope contains the next command of an operation; empty if there is none. The step is nil for
// an operation that has not started.
func (c *Cache) Match(op *event.Operation, next *process.Step) string {
	holds := *c.holds.Load()
	if len(holds) == 0 {
		return ""
	}
	now := c.now()
	for i := range holds {
		if h := &holds[i]; h.Active(now) && h.Scope.Matches(op, next) {
			return h.ID
		}
	}
	return ""
}

// Active returns the ids of the holds that have not ended.
func (c *Cache) Active() []string {
	now := c.now()
	ids := []string{}
	for _, h := range *c.holds.Load() {
		if h.Active(now) {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// Refresh reads the holds, and wakes the timer if a hold has gone, and when one ends by itself.
func (c *Cache) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	found, err := c.store.Holds(ctx)
	if err != nil {
		return fmt.Errorf("read holds: %w", err)
	}
	now := c.now()
	if slices.ContainsFunc(found, func(h Hold) bool { return !h.Active(now) }) {
		if err := c.store.DropEndedHolds(ctx, now); err != nil {
			return err
		}
	}
	present := make(map[string]bool, len(found))
	for i := range found {
		h := &found[i]
		present[h.ID] = true
		if !h.Until.IsZero() && h.Active(now) {
			c.wake(h.Until)
		}
	}
	for _, h := range *c.holds.Swap(&found) {
		if !present[h.ID] {
			c.wake(now)
		}
	}
	return nil
}

// Seen compares the version in the database with the holds in memory, and reads them again if they differ or one has ended. The sweep calls it every
// second, so that a hold applies although its notice was lost.
func (c *Cache) Seen(v Version) {
	holds := *c.holds.Load()
	known, ended, now := Version{Count: len(holds)}, false, c.now()
	for i := range holds {
		known.Newest = max(known.Newest, holds[i].CreatedAt.UnixMicro())
		ended = ended || !holds[i].Active(now)
	}
	if v != known || ended {
		c.Soon()
	}
}
