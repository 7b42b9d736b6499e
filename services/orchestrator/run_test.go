package orchestrator_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestOperation_Steps_RunInOrderAndPublishFacts(t *testing.T) {
	s := newSystem(t)
	s.start()
	op := operation(event.Provision, "i-1", "trial")
	s.request(op)
	s.await(op, event.Succeeded)

	want := []string{
		"operation started", "Starting succeeded", "First succeeded", "Second succeeded", "Poll succeeded", "Optional skipped",
		"Last succeeded", "operation succeeded",
	}
	if diff := cmp.Diff(want, s.history(op.ID)); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	step := string(event.TypeStepFinished)
	wantFacts := []string{
		string(event.TypeOperationStarted), step + " Starting succeeded", string(event.TypeStageFinished),
		step + " First succeeded", step + " Second succeeded", step + " Poll succeeded", string(event.TypeStageFinished),
		step + " Optional skipped", step + " Last succeeded", string(event.TypeStageFinished), string(event.TypeOperationSucceeded),
	}
	testkit.Eventually(t, patience, "all facts have arrived", func() bool { return len(s.factsOf(op.ID)) >= len(wantFacts) })
	if diff := cmp.Diff(wantFacts, s.factsOf(op.ID)); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}
