package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestNotCompleted_StepSucceedsLater_IsRemoved(t *testing.T) {
	for _, c := range []struct {
		name   string
		repeat func(r *run)
		again  event.Outcome
	}{
		{"after a retry", func(r *run) { r.retry(time.Second); r.sleep(time.Second) }, event.OutcomeSucceeded},
		{"after a retry, with the outcome skipped", func(r *run) { r.retry(time.Second); r.sleep(time.Second) }, event.OutcomeSkipped},
		{"after the stage memory was lost", func(r *run) {
			r.result(engine.Result{Outcome: event.OutcomeStageLost})
			r.sleep(time.Second)
		}, event.OutcomeSucceeded},
		{"after an operator's retry", func(r *run) {
			r.fail()
			r.must(engine.Retry{By: "me"})
			r.must(engine.Start{})
		}, event.OutcomeSucceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := started(t, provision)
			for range 3 {
				r.succeed()
			}
			r.fail() // D is skipped
			before := r.s
			c.repeat(r)
			if diff := cmp.Diff([]string{"D"}, r.s.NotCompleted); diff != "" {
				t.Fatalf("not completed (-want +got):\n%s", diff)
			}
			r.result(engine.Result{Outcome: c.again})
			r.wantPosition("E", 2, r.s.StepAttempt)
			if len(r.s.NotCompleted) != 0 {
				t.Errorf("not completed: %v, want none", r.s.NotCompleted)
			}
			if diff := cmp.Diff([]string{"D"}, before.NotCompleted); diff != "" {
				t.Errorf("the previous state was modified (-want +got):\n%s", diff)
			}
		})
	}
}
