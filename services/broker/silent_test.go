package broker_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/kyma-project/keb/services/broker"
)

func TestAnOrderIsRefusedInTimeWhileTheDatabaseIsSilent(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.StoreTimeout = time.Second })
	b.provisioned("before")
	b.database.Stall()
	for range 3 {
		begin := time.Now()
		a := b.put("silent", order(azure))
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
			t.Errorf("status %d %s, Retry-After %q; want 503 and a time", a.status, a.raw, a.header.Get("Retry-After"))
		}
		if took := time.Since(begin); took > 5*b.cfg.StoreTimeout {
			t.Errorf("answered after %s, with %s for the database", took, b.cfg.StoreTimeout)
		}
	}
	b.database.Restore()
	b.provisioned("after")
	b.provisioned("silent")
}

func TestAnOrderIsTakenOnceTheSilentConnectionsAreGivenUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.StoreTimeout = time.Second })
	b.provisioned("before")
	b.database.Silence()
	var a answer
	for range 20 { // more than the pool has connections
		if a = b.put("i", order(azure)); a.status != http.StatusServiceUnavailable {
			break
		}
	}
	b.ended("i", b.accepted(a), "succeeded")
}
