package limit

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
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
	// timeout bounds a read.
	timeout time.Duration
	store   Store
	nats    *nats.Conn
	// changed is called after the limits in memory have changed.
	changed func()
	log     *slog.Logger

	current atomic.Pointer[current]
	// stale is signalled by a notice.
	stale chan struct{}
}

type current struct {
	version int64
	set     *Set
}

// NewCache returns a Cache without limits. The caller must call Load before limits apply, and Run. changed may be nil.
func NewCache(timeout time.Duration, s Store, nc *nats.Conn, changed func(), log *slog.Logger) *Cache {
	if changed == nil {
		changed = func() {}
	}
	c := &Cache{timeout: timeout, store: s, nats: nc, changed: changed, log: log, stale: make(chan struct{}, 1)}
	c.current.Store(&current{set: &Set{}})
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

// loadPause is the pause after a failed read at the start.
const loadPause = time.Second

// Load reads the limits, again and again while the database is away. It reports false if ctx ends before.
func (c *Cache) Load(ctx context.Context) bool {
	for {
		err := c.Refresh(ctx)
		if err == nil {
			return true
		}
		c.log.Warn("limits not read; nothing is sent before", "err", err)
		pause := time.NewTimer(loadPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return false
		case <-pause.C:
		}
	}
}

// Changed applies a change of this orchestrator: it reads the limits, and notifies the other orchestrators.
func (c *Cache) Changed(ctx context.Context) error {
	err := c.Refresh(ctx)
	if problem := c.nats.Publish(event.NoticeLimits, nil); problem != nil {
		c.log.Debug("change of limits not announced", "err", problem)
	}
	return err
}

// Seen compares the version in the database with the one in memory, and reads the limits again if it is newer. The sweep calls it every
// second, so that a change applies although its notice was lost.
func (c *Cache) Seen(version int64) {
	if version > c.current.Load().version {
		c.refreshSoon()
	}
}

func (c *Cache) refreshSoon() {
	select {
	case c.stale <- struct{}{}:
	default:
	}
}

// Run reads the limits after each change until ctx ends.
func (c *Cache) Run(ctx context.Context) error {
	sub, err := c.nats.Subscribe(event.NoticeLimits, func(*nats.Msg) { c.refreshSoon() })
	if err != nil {
		return fmt.Errorf("subscribe to changes of limits: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.stale:
		}
		if err := c.Refresh(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("limits not read; the last known ones apply", "err", err)
		}
	}
}
