package main

import (
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

func TestApproval_Event_DecidesTheOrder(t *testing.T) {
	t.Parallel()
	for answer, want := range map[bool]event.Outcome{true: event.OutcomeSucceeded, false: event.OutcomeFailed} {
		first := workertest.Run(t, ApprovalStep{}, workertest.Operation{ID: "0193a3c5-6c0e-7a9e-9c58-7d1f0f3a2b10"})
		if first.Outcome != event.OutcomeRetry || first.EventKey != "approval.0193a3c5-6c0e-7a9e-9c58-7d1f0f3a2b10" {
			t.Fatalf("outcome %q, waits for the event %q", first.Outcome, first.EventKey)
		}
		second := workertest.Run(t, ApprovalStep{}, first.ThenEvent(t, map[string]bool{"approved": answer}))
		if second.Outcome != want {
			t.Errorf("approved %t: outcome %q, error %+v", answer, second.Outcome, second.Error)
		}
		if poll := workertest.Run(t, ApprovalStep{}, first.Then()); poll.EventKey == "" {
			t.Error("the fallback poll does not wait again")
		}
	}
}
