package ramp

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
	"github.com/kyma-project/keb/services/orchestrator/internal/replica"
)

// Store reads ramps.
type Store interface {
	// Ramps returns all ramps, including removed ones, oldest first.
	Ramps(ctx context.Context) ([]Ramp, error)
}

// Cache keeps the ramps in memory. It is safe for concurrent use.
type Cache struct {
	*replica.Follower

	timeout time.Duration
	store   Store
	ramps   atomic.Pointer[known]
}

// known are the ramps of one read.
type known struct {
	applied, removed []Ramp
	version          hold.Version
}

// NewCache returns an empty Cache. The caller must call Load or Refresh before ramps apply, and Run. Ramps share the notice of holds.
func NewCache(timeout time.Duration, s Store, nc *nats.Conn, log *slog.Logger) *Cache {
	c := &Cache{timeout: timeout, store: s}
	c.ramps.Store(&known{})
	c.Follower = replica.NewFollower("ramps", event.NoticeHolds, c.Refresh, nc, log)
	return c
}

// All returns the ramps that apply, oldest first. The caller must not modify them.
func (c *Cache) All() []Ramp { return c.ramps.Load().applied }

// Removed returns the removed ramps whose commands may not have gone to other replicas, oldest first. The caller must not modify them.
func (c *Cache) Removed() []Ramp { return c.ramps.Load().removed }

// Version is the function Version with the current ramps.
func (c *Cache) Version(op *event.Operation, worker string, startedAt time.Time) string {
	return Version(c.All(), op, worker, startedAt)
}

// Refresh reads the ramps.
func (c *Cache) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	found, err := c.store.Ramps(ctx)
	if err != nil {
		return fmt.Errorf("read ramps: %w", err)
	}
	k := &known{version: hold.Version{Count: len(found)}}
	for _, r := range found {
		k.version.Newest = max(k.version.Newest, r.CreatedAt.UnixMicro(), r.RemovedAt.UnixMicro())
		if r.RemovedAt.IsZero() {
			k.applied = append(k.applied, r)
		} else {
			k.removed = append(k.removed, r)
		}
	}
	c.ramps.Store(k)
	return nil
}

// Seen compares the version in the database with the ramps in memory, and reads them again if they differ. The sweep calls it every second, so
// that a ramp applies although its notice was lost.
func (c *Cache) Seen(v hold.Version) {
	if v != c.ramps.Load().version {
		c.Soon()
	}
}
