package broker_test

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// restartWithShortStoreTimeout restarts the broker with a store timeout of one second. On a busy machine, calls can then time out
// although nothing is wrong, so tests check only the final result.
func (b *bench) restartWithShortStoreTimeout() {
	b.t.Helper()
	b.stop()
	b.cfg.StoreTimeout = time.Second
	b.start()
}

// retryWhile503 repeats a request while the answer is 503, as platforms do.
func (b *bench) retryWhile503(what string, ask func() answer) answer {
	b.t.Helper()
	var a answer
	testkit.Eventually(b.t, waitTimeout, what, func() bool {
		a = ask()
		return a.status != http.StatusServiceUnavailable
	})
	return a
}

// provisionedEventually orders until the order is accepted, and polls until the instance exists.
func (b *bench) provisionedEventually(id string) {
	b.t.Helper()
	a := b.retryWhile503("the order", func() answer { return b.put(id, order(azure)) })
	if a.status != http.StatusAccepted && a.status != http.StatusOK { // 200 means that an order answered with 503 was stored
		b.t.Fatalf("status %d %s", a.status, a.raw)
	}
	b.endedBy(func(id, operation string) answer {
		return b.retryWhile503("a poll", func() answer { return b.last(id, operation) })
	}, id, a.text("operation"), "succeeded")
}

func TestOrder_SilentDatabase_Returns503InTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("before")
	b.restartWithShortStoreTimeout()
	b.database.Stall()
	for range 3 {
		begin := time.Now()
		a := b.put("silent", order(azure))
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
			t.Errorf("status %d %s, Retry-After %q; want 503 and a time", a.status, a.raw, a.header.Get("Retry-After"))
		}
		// Without the store timeout, the call would take the 30 s of the request.
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("answered after %s, with %s for the database", took, b.cfg.StoreTimeout)
		}
	}
	b.database.Restore()
	b.provisionedEventually("after")
	b.provisionedEventually("silent")
}

func TestOrder_SilentConnectionsClosed_IsAccepted(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("before")
	b.restartWithShortStoreTimeout()
	b.database.Silence()
	b.provisionedEventually("i")
}

func TestFacts_SilentDatabase_AreReturnedInBatches(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	operation := b.started("i")
	b.stop()
	const facts = 40
	for cursor := int64(2); cursor < 2+facts; cursor++ {
		b.fact(operation, event.TypeStepFinished, event.StepFinished{
			Fact:    event.Fact{OperationID: operation, OperationType: event.Provision, InstanceID: "i", Cursor: cursor},
			Outcome: event.OutcomeRetry, Next: &event.Position{Stage: "s", Step: "Step", StageAttempt: 1, StepAttempt: 1},
		})
	}
	b.cfg.StoreTimeout = time.Second
	b.prepare()
	b.database.Stall()
	b.run()
	batch := regexp.MustCompile(`facts not applied, they will be redelivered" count=(\d+)`)
	batches := 0
	testkit.Eventually(t, waitTimeout, "all facts to be given back", func() bool {
		given := 0
		batches = 0
		for _, m := range batch.FindAllStringSubmatch(b.log.String(), -1) {
			n, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			batches++
			if given += n; given >= facts {
				return true
			}
		}
		return false
	})
	// Separate redeliveries would block the consumer for one store timeout each.
	if batches > facts/4 || strings.Contains(b.log.String(), "one by one") {
		t.Errorf("%d facts are given back in %d batches", facts, batches)
	}
	b.database.Restore()
	testkit.Eventually(t, waitTimeout, "the last fact", func() bool { return b.cursor(operation) == 1+facts })
}
