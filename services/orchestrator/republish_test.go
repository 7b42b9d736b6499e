package orchestrator_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// The limit of the step is an hour, and the clock does not advance. What continues earlier was published at a start.
func TestRestart_UnpublishedCommand_OperationContinues(t *testing.T) {
	s := newSystem(t)
	s.cfg.Processes = withExecution(testProcesses, "1h")
	clock := testkit.NewClock(time.Now().Add(time.Minute)) // the bus has not just started
	s.now = clock.Now
	address, err := url.Parse(s.nats.URL())
	require.NoError(t, err)
	way := testkit.Proxy(t, address.Host)
	address.Host = way.Addr()
	s.orchestratorOn(address.String())
	s.worker("alpha")
	s.script.set("Change", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		if op.StepAttempt == 1 {
			return op, time.Minute, nil
		}
		return op, 0, nil
	})
	op := operation(event.Update, "i-1", "azure")
	s.request(op)
	is := func(what, column string) {
		t.Helper()
		testkit.Eventually(t, patience, what, func() (set bool) {
			require.NoError(t, s.db.Get(&set, `SELECT COALESCE((SELECT `+column+` IS NOT NULL FROM orchestrator.operations WHERE id = $1), false)`, op.ID))
			return set
		})
	}
	is("the operation waits for its second try", "due_at")
	testkit.Eventually(t, patience, "the bus has nothing to redeliver", func() bool {
		results, err := s.bus.JetStream().Stream(t.Context(), string(event.StreamResults))
		require.NoError(t, err)
		return results.CachedInfo().State.Msgs == 0
	})
	way.Cut() // like a killed process, it cannot publish any more
	clock.Advance(time.Minute)
	is("the second try is committed", "execute_before")

	s.orchestrator()
	s.await(op, event.Succeeded)
	if n := s.script.countOf(op.ID, "Change"); n != 2 {
		t.Errorf("the step was executed %d times, want twice", n)
	}
}
