package dispatch

import (
	"sync"

	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// cacheSize is the maximum number of rows in each of the two generations of the cache.
const cacheSize = 4096

// cache keeps the rows of operations whose command is in flight, which saves a read when the result arrives. A stale row is harmless,
// because its write fails the version check. The size does not depend on the number of operations. Cached rows are not modified.
type cache struct {
	mu         sync.Mutex
	limit      int
	young, old map[string]*store.Row
}

func newCache(limit int) *cache {
	return &cache{limit: limit, young: map[string]*store.Row{}, old: map[string]*store.Row{}}
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
	if len(c.young) >= c.limit {
		c.old, c.young = c.young, make(map[string]*store.Row, c.limit)
	}
	c.young[r.Operation.ID] = r
}

func (c *cache) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.young, id)
	delete(c.old, id)
}
