package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestCancel_FailingStep_IsTheCause(t *testing.T) {
	t.Parallel()
	failing := event.Error{Component: "ext", Message: "not yet"}
	for name, c := range map[string]struct {
		before func(r *run)
		want   *engine.Cause
	}{
		"waits for its next try": {
			func(r *run) { r.succeed(); r.retry(time.Minute) },
			&engine.Cause{Stage: 1, Step: 1, Error: failing, Since: epoch, Attempts: 1},
		},
		"an earlier step of the stage runs again": {
			func(r *run) { r.succeed(); r.retry(10 * time.Second); r.sleep(10 * time.Second) },
			&engine.Cause{Stage: 1, Step: 1, Error: failing, Since: epoch, Attempts: 1},
		},
		"polls":         {func(r *run) { r.result(engine.Result{Outcome: event.OutcomeRetry, RetryAfter: time.Minute}) }, nil},
		"its first try": {func(*run) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := started(t, provision+finally)
			c.before(r)
			r.must(engine.Cancel{Reason: "enough"})
			if r.s.InFlight() && r.s.Ending == nil {
				r.succeed()
			}
			if diff := cmp.Diff(c.want, r.s.Cause); diff != "" {
				t.Errorf("cause (-want +got):\n%s", diff)
			}
		})
	}
	r := started(t, provision)
	r.must(engine.Cancel{Reason: "enough"})
	r.retry(time.Minute) // the last result is a failure
	r.wantStatus(event.Cancelled)
	if want := (&engine.Cause{Stage: 1, Error: failing, Since: epoch, Attempts: 1}); !cmp.Equal(want, r.s.Cause) {
		t.Errorf("cause is %+v, want %+v", r.s.Cause, want)
	}
}

func TestResult_LateStart_RecordsTheQueue(t *testing.T) {
	t.Parallel()
	for waited, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 40 * time.Millisecond: 0, 1500*time.Millisecond + 300*time.Microsecond: 1500 * time.Millisecond,
	} {
		r := started(t, provision)
		begun := r.now.Add(waited)
		r.must(engine.Result{
			Cursor: r.s.AwaitedCursor(), Outcome: event.OutcomeSucceeded, Worker: event.Worker{Name: "alpha"}, StartedAt: begun, FinishedAt: begun,
		})
		if got := r.last.History[0].Queued; got != want {
			t.Errorf("a command that waited for %s: %s are recorded, want %s", waited, got, want)
		}
	}
}
