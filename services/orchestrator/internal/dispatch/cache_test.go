package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

func cached(n, version int) *store.Row {
	return &store.Row{State: engine.New(event.Operation{ID: fmt.Sprint("op-", n)}), Version: version}
}

func TestCache_LimitReached_EvictsTheOldest(t *testing.T) {
	c := newCache(10, time.Now)
	for n := range 1000 {
		c.put(cached(n, 0))
		if len(c.young) > 10 || len(c.old) > 10 {
			t.Fatalf("%d and %d rows, at most 10 each are allowed", len(c.young), len(c.old))
		}
	}
	for n, want := range map[int]bool{999: true, 990: true, 0: false, 970: false} {
		if got := c.get(fmt.Sprint("op-", n)) != nil; got != want {
			t.Errorf("row %d is cached: %t, want %t", n, got, want)
		}
	}
}

func TestCache_RowReplaced_ReturnsTheLatest(t *testing.T) {
	c := newCache(2, time.Now)
	c.put(cached(1, 1))
	c.put(cached(2, 1))
	c.put(cached(3, 1)) // moves the first two to the old generation
	c.put(cached(1, 2))
	if got := c.get("op-1"); got == nil || got.Version != 2 {
		t.Errorf("row is %+v, want version 2", got)
	}
	c.drop("op-1")
	if got := c.get("op-1"); got != nil {
		t.Errorf("a dropped row is still cached: version %d", got.Version)
	}
}

// Another orchestrator may get the result, so nothing here learns that the operation has ended.
func TestCache_RowIsOld_IsRemoved(t *testing.T) {
	now := time.Now()
	c := newCache(10, func() time.Time { return now })
	c.put(cached(1, 1))
	now = now.Add(cacheAge)
	c.put(cached(2, 1))
	if c.get("op-1") == nil {
		t.Error("the row was removed after the age of a generation, want it for another one")
	}
	now = now.Add(cacheAge)
	c.put(cached(3, 1))
	if c.get("op-1") != nil {
		t.Error("a row is cached after the ages of two generations")
	}
	if c.get("op-2") == nil || c.get("op-3") == nil {
		t.Error("younger rows were removed")
	}
}
