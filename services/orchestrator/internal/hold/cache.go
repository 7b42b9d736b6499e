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
	// timeout bounds a read.
	timeout time.Duration
	store   Store
	nats    *nats.Conn
	now     func() time.Time
	// wake is called with the time at which held operations may be released.
	wake func(at time.Time)
	log  *slog.Logger

	holds atomic.Pointer[[]Hold]
	// stale is signalled by a notice.
	stale chan struct{}
}

// NewCache returns an empty Cache. The caller must call Load before the holds apply, and Run.
func NewCache(timeout time.Duration, s Store, nc *nats.Conn, now func() time.Time, wake func(at time.Time), log *slog.Logger) *Cache {
	c := &Cache{timeout: timeout, store: s, nats: nc, now: now, wake: wake, log: log, stale: make(chan struct{}, 1)}
	c.holds.Store(&[]Hold{})
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

// loadPause is the pause after a failed read at the start.
const loadPause = time.Second

// Load reads the holds, again and again while the database is away. It reports false if ctx ends before.
func (c *Cache) Load(ctx context.Context) bool {
	for {
		err := c.Refresh(ctx)
		if err == nil {
			return true
		}
		c.log.Warn("holds not read; nothing is sent before", "err", err)
		pause := time.NewTimer(loadPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return false
		case <-pause.C:
		}
	}
}

// Changed applies a change of this orchestrator: it reads the holds, and notifies the other orchestrators.
func (c *Cache) Changed(ctx context.Context) error {
	err := c.Refresh(ctx)
	if problem := c.nats.Publish(event.NoticeHolds, nil); problem != nil {
		c.log.Debug("change of holds not announced", "err", problem)
	}
	return err
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
		c.refreshSoon()
	}
}

func (c *Cache) refreshSoon() {
	select {
	case c.stale <- struct{}{}:
	default:
	}
}

// Run reads the holds after each change until ctx ends.
func (c *Cache) Run(ctx context.Context) error {
	sub, err := c.nats.Subscribe(event.NoticeHolds, func(*nats.Msg) { c.refreshSoon() })
	if err != nil {
		return fmt.Errorf("subscribe to changes of holds: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.stale:
		}
		if err := c.Refresh(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("holds not read; the last known ones apply", "err", err)
		}
	}
}
