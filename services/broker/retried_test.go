package broker_test

import (
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestOperation_RetriedByOperator_IsInProgressAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.orch.set(func() { b.orch.held = true })
	operation := b.accepted(b.put("i", order(azure)))
	testkit.Eventually(t, waitTimeout, "start", func() bool { return b.cursor(operation) == 1 })
	at := func(cursor int64) event.Fact {
		return event.Fact{OperationID: operation, OperationType: event.Provision, InstanceID: "i", Cursor: cursor}
	}
	state := func(cursor int64, want, description string) {
		t.Helper()
		testkit.Eventually(t, waitTimeout, "the fact", func() bool { return int64(b.cursor(operation)) == cursor })
		if a := b.last("i", operation); a.text("state") != want || (description != "" && a.text("description") != description) {
			t.Errorf("at cursor %d: %s, want state %q and %q", cursor, a.raw, want, description)
		}
	}
	b.fact(operation, event.TypeOperationFailed, event.OperationFailed{
		Fact: at(5), Stage: "s", Step: "Bad", Error: event.Error{Component: "avs", Reason: "err_avs", Message: "no"},
	})
	state(5, "failed", "")
	b.fact(operation, event.TypeOperationStarted, event.OperationStarted{
		Fact: at(7), Stages: []string{"s_first", "s"}, Next: &event.Position{Stage: "s", Step: "First", StageAttempt: 2, StepAttempt: 1},
	})
	state(7, "in progress", "provisioning: stage 2 of 2 (s)")
	// The facts of one transition have the same cursor, in any order.
	b.fact(operation, event.TypeOperationSucceeded, event.OperationSucceeded{Fact: at(9)})
	b.fact(operation, event.TypeStepFinished, event.StepFinished{
		Fact: at(9), Position: event.Position{Stage: "s", Step: "Bad", StageAttempt: 2, StepAttempt: 1}, Outcome: event.OutcomeSucceeded,
	})
	state(9, "succeeded", "")
	if a := b.send("GET", "/v2/service_instances/i", nil); a.status != 200 {
		t.Errorf("the instance: status %d %s", a.status, a.raw)
	}
}
