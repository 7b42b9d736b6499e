package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

func TestUnanswered_Tries_AreNoted(t *testing.T) {
	t.Parallel()
	failed := func(reason string) func(*run) {
		return func(r *run) {
			r.result(engine.Result{Outcome: event.OutcomeRetry, Error: &event.Error{Component: "avs", Reason: reason, Message: "no"}})
		}
	}
	startedAfter := func(d time.Duration) func(*run) {
		return func(r *run) {
			sent := r.now
			r.now = r.now.Add(15 * time.Second)
			r.must(engine.Result{Outcome: event.OutcomeSucceeded, Cursor: r.s.AwaitedCursor(), StartedAt: sent.Add(d), FinishedAt: r.now})
		}
	}
	for _, c := range []struct {
		name string
		do   func(*run)
		want bool
	}{
		{"success", func(r *run) { r.succeed() }, false},
		{"an answer with an error", failed("err_http_500"), false},
		{"a refused connection", failed(worker.ReasonRefused), false},
		{"no answer to a call", failed(worker.ReasonNetworkTimeout), true},
		{"a lost connection", failed(worker.ReasonNetwork), true},
		{"a step that exceeded its limit", failed(worker.ReasonTimeout), true},
		{"a cancelled step", failed(worker.ReasonCancelled), true},
		{"no answer of the worker", func(r *run) { r.hang(true) }, true},
		{"cancelled without an answer", func(r *run) { r.must(engine.Cancel{Reason: "enough"}); r.hang(true) }, true},
		{"skipped while it executes", func(r *run) { r.must(engine.SkipStep{Step: "A", By: "jane"}) }, true},
		{"executed soon", startedAfter(4 * time.Second), false},
		{"executed after a redelivery", startedAfter(5 * time.Second), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := started(t, provision)
			c.do(r)
			if got := !r.s.UnansweredAt.IsZero(); got != c.want {
				t.Errorf("unanswered at %s, now %s, want noted %t", r.s.UnansweredAt, r.now, c.want)
			}
		})
	}
	r := started(t, deprovision)
	r.hang(true)
	require.Zero(t, r.s.UnansweredAt, "of a deprovisioning")
}

func TestDeprovision_SoonAfterUnansweredTry_RepeatsAllSteps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		after     time.Duration
		unsettled bool
	}{
		{"within the window", engine.LateWindow - time.Second, true},
		{"after the window", engine.LateWindow, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t, load(t, strings.ReplaceAll(deprovision, "Third", event.StepRemoveInstance)))
			r.must(engine.Start{UnansweredAt: r.now.Add(-c.after)})
			r.succeed()
			r.succeed()
			r.result(engine.Result{Outcome: event.OutcomeNotCompleted, Error: &event.Error{Component: "keb", Reason: "err_keb_unsettled", Message: "later"}})
			r.wantStatus(event.Succeeded)
			until := r.s.UnsettledUntil()
			if c.unsettled != !until.IsZero() || c.unsettled && !until.Equal(epoch.Add(time.Second)) {
				t.Errorf("unsettled until %s", until)
			}
			release := store.NewRelease(&r.s, func() []string { return r.s.CompletedSteps(r.p) })
			if c.unsettled != (len(release.Completed) == 0) || c.unsettled != release.Removed {
				t.Errorf("the next deprovisioning skips %v, removed %t", release.Completed, release.Removed)
			}
		})
	}
}

func TestDeprovision_RemovedObjects_AreLateIfAlreadyDeprovisioned(t *testing.T) {
	t.Parallel()
	names := make([]string, 12)
	for i := range names {
		names[i] = fmt.Sprintf("evaluation %d", i)
	}
	for _, c := range []struct {
		name  string
		start engine.Start
		want  int
	}{
		{"the first deprovisioning", engine.Start{UnansweredAt: epoch.Add(-time.Hour)}, 0},
		{"a second one, with nothing unanswered", engine.Start{Removed: true}, 0},
		{"a second one, too early", engine.Start{UnansweredAt: epoch.Add(-time.Minute), Removed: true}, 0},
		{"a second one", engine.Start{UnansweredAt: epoch.Add(-time.Hour), Removed: true}, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t, load(t, deprovision))
			r.must(c.start)
			r.result(engine.Result{Outcome: event.OutcomeRetry, Message: "wait", Removed: names})
			e := r.history[len(r.history)-1]
			require.Equal(t, c.want, e.LateEffects)
			want := "wait"
			if c.want > 0 {
				want += "; removed what an unanswered request had created: " + strings.Join(names[:10], ", ") + ", and 2 more"
			}
			require.Equal(t, want, e.Message)
		})
	}
}
