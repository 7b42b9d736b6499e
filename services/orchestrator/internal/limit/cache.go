package limit

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/replica"
)

// Document is a stored document.
type Document struct {
	// Version grows by one with each change; 0 if nothing was applied yet.
	Version int64
	// Text is the document in YAML.
	Text      string
	AppliedBy string
	AppliedAt time.Time
}

// Store reads the document.
type Store interface {
	Limits(ctx context.Context) (Document, error)
}

// Cache keeps the limits in memory. It is safe for concurrent use.
type Cache struct {
	*replica.Follower

	// timeout bounds a read.
	timeout time.Duration
	store   Store
	// changed is called after the limits in memory have changed.
	changed func()
	log     *slog.Logger

	current atomic.Pointer[current]
}

type current struct {
	version int64
	set     *Set
}

// NewCache returns a Cache without limits. The caller must call Load or Refresh before limits apply, and Run. changed may be nil.
func NewCache(timeout time.Duration, s Store, nc *nats.Conn, changed func(), log *slog.Logger) *Cache {
	if changed == nil {
		changed = func() {}
	}
	c := &Cache{timeout: timeout, store: s, changed: changed, log: log}
	c.current.Store(&current{set: &Set{}})
	c.Follower = replica.NewFollower("limits", event.NoticeLimits, c.Refresh, nc, log)
	return c
}

// Current returns the limits and their version. The caller must not modify them.
func (c *Cache) Current() (*Set, int64) {
	now := c.current.Load()
	return now.set, now.version
}

// Refresh reads the limits.
func (c *Cache) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	d, err := c.store.Limits(ctx)
	if err != nil {
		return fmt.Errorf("read limits: %w", err)
	}
	set, err := Parse([]byte(d.Text))
	if err != nil { // a newer release has written it
		return fmt.Errorf("read version %d of the limits: %w", d.Version, err)
	}
	for {
		was := c.current.Load()
		if was.version >= d.Version {
			return nil
		}
		if c.current.CompareAndSwap(was, &current{version: d.Version, set: set}) {
			c.log.Info("limits apply", "version", d.Version, "limits", len(set.Limits), "by", d.AppliedBy)
			c.changed()
			return nil
		}
	}
}

// Seen compares the version in the database with the one in memory, and reads the limits again if it is newer. The sweep calls it every
// second, so that a change applies although its notice was lost.
func (c *Cache) Seen(version int64) {
	if version > c.current.Load().version {
		c.Soon()
	}
}
