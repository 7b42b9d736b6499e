package dispatch

import (
	"sync"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// cacheSize is the maximum number of rows in each of the two generations of the cache.
	cacheSize = 4096
	// cacheAge is the age at which a generation ends. Most commands are answered within seconds. If another orchestrator gets the result, only
	// age removes the row here.
	cacheAge = time.Minute
)

// cache keeps the rows of operations whose command is in flight, which saves a read when the result arrives. A stale row is harmless,
// because its write fails the version check. The size does not depend on the number of operations. Cached rows are not modified.
type cache struct {
	now        func() time.Time
	mu         sync.Mutex
	limit      int
	began      time.Time // when the young generation began
	young, old map[string]*store.Row
}

func newCache(limit int, now func() time.Time) *cache {
	return &cache{now: now, limit: limit, began: now(), young: map[string]*store.Row{}, old: map[string]*store.Row{}}
}

func (c *cache) get(id string) *store.Row {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.young[id]; ok {
		return r
	}
	return c.old[id]
}

func (c *cache) put(r *store.Row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); len(c.young) >= c.limit || now.Sub(c.began) >= cacheAge {
		c.old, c.young, c.began = c.young, map[string]*store.Row{}, now
	}
	c.young[r.Operation.ID] = r
}

func (c *cache) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.young, id)
	delete(c.old, id)
}
