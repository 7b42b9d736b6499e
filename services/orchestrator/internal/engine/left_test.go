package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// wantLeft checks the attempts and the end of the budget, which is after the start of the operation.
func (r *run) wantLeft(limit engine.Limit, attempts int, ends time.Duration, then process.Policy) {
	r.t.Helper()
	want := &engine.BudgetLeft{Attempts: attempts, EndsAt: epoch.Add(ends), OnTimeout: then, Limit: limit}
	if diff := cmp.Diff(want, engine.Left(r.p, &r.s)); diff != "" {
		r.t.Errorf("budget (-want +got):\n%s", diff)
	}
}

func TestLeft_RepeatedStage_ShowsTheFailingStep(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.wantLeft(engine.RetryLimit, 1, 5*time.Minute, process.Fail)
	r.now = r.now.Add(time.Minute)
	r.succeed()
	r.wantLeft(engine.RetryLimit, 1, 6*time.Minute, process.Fail)
	r.retry(0)
	r.wantLeft(engine.RetryLimit, 1, 6*time.Minute, process.Fail)
	r.sleep(10 * time.Second)
	r.wantPosition("A", 2, 1) // on the way to B
	r.wantLeft(engine.RetryLimit, 1, 6*time.Minute, process.Fail)
	r.succeed()
	r.wantPosition("B", 2, 2)
	r.wantLeft(engine.RetryLimit, 2, 6*time.Minute, process.Fail)
}

func TestLeft_PollingAndFailing_HaveTheirOwnBudgets(t *testing.T) {
	t.Parallel()
	r := started(t, waiting)
	r.wantLeft(engine.RetryLimit, 1, 5*time.Minute, process.Skip)
	r.wait()
	r.wantLeft(engine.WaitLimit, 1, 30*time.Minute, process.Skip)
	r.wake() // after a minute
	r.wantLeft(engine.WaitLimit, 2, 30*time.Minute, process.Skip)
	r.retry(0)
	r.wantLeft(engine.RetryLimit, 2, 6*time.Minute, process.Skip)
}

func TestLeft_NoBudget_EndsWithTheOperation(t *testing.T) {
	t.Parallel()
	r := started(t, unlimited)
	r.wantLeft(engine.OperationLimit, 1, time.Hour, process.Fail)
	r.retry(time.Minute)
	r.wantLeft(engine.OperationLimit, 1, time.Hour, process.Fail)
	if left := engine.Left(r.p, &engine.State{Status: event.Pending}); left != nil {
		t.Errorf("a pending operation has the budget %+v", left)
	}
}

func TestFailingStep_RepeatedStage_KeepsItsError(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.succeed()
	r.retry(0)
	since := r.now
	r.sleep(10 * time.Second)
	r.wantCondition(engine.Failing, since)
	r.succeed() // A, on the way to B
	r.wantCondition(engine.Failing, since)
	if r.s.Error == nil || r.s.Error.Message != "not yet" || r.s.StandsAt() != r.s.Step {
		t.Errorf("error %+v at step %d, want the one of B", r.s.Error, r.s.StandsAt())
	}
	r.succeed()
	r.wantCondition("", time.Time{})
	if r.s.Error != nil {
		t.Errorf("error %+v after the step has succeeded", r.s.Error)
	}
}
