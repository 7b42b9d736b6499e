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

// impatient starts the broker again with a second for each use of the database. On a busy machine that may be over also where
// nothing is wrong, so what is expected of such a broker is what it does in the end.
func (b *bench) impatient() {
	b.t.Helper()
	b.stop()
	b.cfg.StoreTimeout = time.Second
	b.start()
}

// insist asks again while the answer is 503, as platforms do.
func (b *bench) insist(what string, ask func() answer) answer {
	b.t.Helper()
	var a answer
	testkit.Eventually(b.t, patience, what, func() bool {
		a = ask()
		return a.status != http.StatusServiceUnavailable
	})
	return a
}

// provisionedInTheEnd orders until the order is taken, and polls until the instance is there.
func (b *bench) provisionedInTheEnd(id string) {
	b.t.Helper()
	a := b.insist("the order", func() answer { return b.put(id, order(azure)) })
	if a.status != http.StatusAccepted && a.status != http.StatusOK { // 200 is one that was taken although the answer was 503
		b.t.Fatalf("status %d %s", a.status, a.raw)
	}
	b.endedBy(func(id, operation string) answer {
		return b.insist("a poll", func() answer { return b.last(id, operation) })
	}, id, a.text("operation"), "succeeded")
}

func TestAnOrderIsRefusedInTimeWhileTheDatabaseIsSilent(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("before")
	b.impatient()
	b.database.Stall()
	for range 3 {
		begin := time.Now()
		a := b.put("silent", order(azure))
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
			t.Errorf("status %d %s, Retry-After %q; want 503 and a time", a.status, a.raw, a.header.Get("Retry-After"))
		}
		// Without a limit of its own the database would have the 30 s of the request.
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("answered after %s, with %s for the database", took, b.cfg.StoreTimeout)
		}
	}
	b.database.Restore()
	b.provisionedInTheEnd("after")
	b.provisionedInTheEnd("silent")
}

func TestAnOrderIsTakenOnceTheSilentConnectionsAreGivenUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("before")
	b.impatient()
	b.database.Silence()
	b.provisionedInTheEnd("i")
}

func TestFactsAreGivenBackTogetherWhileTheDatabaseIsSilent(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.orch.set(func() { b.orch.held = true })
	operation := b.accepted(b.put("i", order(azure)))
	testkit.Eventually(t, patience, "start", func() bool { return b.cursor(operation) == 1 })
	b.stop()
	const facts = 40
	for cursor := int64(2); cursor < 2+facts; cursor++ {
		b.fact(operation, event.TypeStepFinished, event.StepFinished{
			Fact:    event.Fact{OperationID: operation, OperationType: event.Provision, InstanceID: "i", Cursor: cursor},
			Outcome: event.OutcomeRetry, Next: &event.Position{Stage: "s", Step: "Step", StageAttempt: 1, StepAttempt: 1},
		})
	}
	b.database.Stall()
	b.impatient()
	batch := regexp.MustCompile(`facts not applied, they will be redelivered" count=(\d+)`)
	batches := 0
	testkit.Eventually(t, patience, "all facts to be given back", func() bool {
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
	// One after the other they would hold the consumer for a store timeout each.
	if batches > facts/4 || strings.Contains(b.log.String(), "one by one") {
		t.Errorf("%d facts are given back in %d batches", facts, batches)
	}
	b.database.Restore()
	testkit.Eventually(t, patience, "the last fact", func() bool { return b.cursor(operation) == 1+facts })
}
