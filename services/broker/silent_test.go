package broker_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
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
	for range 60 { // more than the pool has connections, and some for a busy machine
		if a = b.put("i", order(azure)); a.status != http.StatusServiceUnavailable {
			break
		}
	}
	b.ended("i", b.accepted(a), "succeeded")
}

func TestFactsAreGivenBackTogetherWhileTheDatabaseIsSilent(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.StoreTimeout = time.Second })
	b.orch.set(func() { b.orch.held = true })
	operation := b.accepted(b.put("i", order(azure)))
	testkit.Eventually(t, 5*time.Second, "start", func() bool { return b.cursor(operation) == 1 })
	b.database.Stall()
	const facts = 40
	for cursor := int64(2); cursor < 2+facts; cursor++ {
		b.fact(operation, event.TypeStepFinished, event.StepFinished{
			Fact:    event.Fact{OperationID: operation, OperationType: event.Provision, InstanceID: "i", Cursor: cursor},
			Outcome: event.OutcomeRetry, Next: &event.Position{Stage: "s", Step: "Step", StageAttempt: 1, StepAttempt: 1},
		})
	}
	testkit.Eventually(t, 10*time.Second, "a batch that is given back", func() bool {
		return strings.Contains(b.log.String(), "facts not applied, they come again")
	})
	b.database.Restore()
	// One after the other they would hold the consumer for a store timeout each.
	testkit.Eventually(t, facts*b.cfg.StoreTimeout/2, "the last fact", func() bool { return b.cursor(operation) == 1+facts })
}
