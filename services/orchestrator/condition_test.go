package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// stuckGroup is a group of stuck operations.
type stuckGroup struct {
	Reason, Worker, Step  string
	Count                 int
	Operations, BlockedBy []string
	Error                 struct{ Reason, Message string }
	Since                 time.Time
}

func (s *system) stuck() (groups []stuckGroup) {
	s.t.Helper()
	var list struct{ Data []stuckGroup }
	s.get("/stuck", &list)
	return list.Data
}

// A reason must not change while the next try runs, and not while the steps before it are repeated.
func TestCondition_FailingStep_NeverFlickers(t *testing.T) {
	s := measured(t)
	s.cfg.AskWorkersEvery = 2 * time.Second // a short pause of the process must not make its worker appear missing
	running, proceed := make(chan string), make(chan error)
	step := func(name string) behaviour {
		return func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
			select {
			case running <- name:
			case <-ctx.Done():
				return op, 0, ctx.Err()
			}
			if err := <-proceed; err != nil {
				return worker.Retry(op, time.Millisecond, err)
			}
			return op, 0, nil
		}
	}
	s.script.set("First", step("First"))
	s.script.set("Second", step("Second"))
	s.start()
	testkit.Eventually(t, patience, "both workers are live", func() bool {
		return s.metric("keb_worker_step_served", "First", "alpha") == 1 && s.metric("keb_worker_step_served", "Second", "beta") == 1
	})
	op, behind := operation(event.Provision, "i-1", "azure"), operation(event.Update, "i-1", "azure")
	s.request(op)
	require.Equal(t, "First", <-running)
	if w := s.waiting(op.ID); w.Reason != "executing" || w.Step != "First" {
		t.Errorf("the first try: %+v", w)
	}
	proceed <- nil
	require.Equal(t, "Second", <-running)
	s.request(behind)
	proceed <- errors.New("the system is closed")

	type shown struct{ Waiting, Step, Error string }
	seen := func() (at shown, since time.Time) {
		var o struct {
			Waiting struct {
				Reason, Step string
				Since        time.Time
			}
			Error struct{ Message string }
		}
		s.get("/operations/"+op.ID, &o)
		return shown{o.Waiting.Reason, o.Waiting.Step, o.Error.Message}, o.Waiting.Since
	}
	testkit.Eventually(t, patience, "the step fails", func() bool {
		at, _ := seen()
		return at.Waiting == "failing" && len(s.found("waiting=failing")) == 1
	})
	_, first := seen()
	s.shows(map[string]float64{"keb_operations_waiting|failing|provision": 1})
	testkit.Eventually(t, patience, "the operation is stuck, and blocks the other one", func() bool { return len(s.stuck()) == 2 })
	const rounds = 15
	for range rounds {
		for _, name := range []string{"First", "Second"} {
			require.Equal(t, name, <-running)
			var failure error
			if name == "Second" {
				failure = errors.New("the system is closed")
			}
			at, since := seen()
			if diff := cmp.Diff(shown{"failing", "Second", "the system is closed"}, at); diff != "" || !since.Equal(first) {
				t.Fatalf("while %s runs: since %s (-want +got):\n%s", name, since, diff)
			}
			var overview struct{ Waiting map[string]int }
			s.get("/overview", &overview)
			if overview.Waiting["failing"] != 1 || overview.Waiting["executing"] != 0 {
				t.Fatalf("while %s runs: overview %v", name, overview.Waiting)
			}
			if diff := cmp.Diff([]string{op.ID}, s.found("waiting=failing")); diff != "" {
				t.Fatalf("while %s runs: operations that fail (-want +got):\n%s", name, diff)
			}
			groups := map[string]string{}
			for _, g := range s.stuck() {
				groups[g.Reason] = fmt.Sprintf("%d %s %s %v %v %s", g.Count, g.Worker, g.Step, g.Operations, g.BlockedBy, g.Error.Message)
			}
			if diff := cmp.Diff(map[string]string{
				"failing":       fmt.Sprintf("1 beta Second [%s] [] the system is closed", op.ID),
				"instance_busy": fmt.Sprintf("1   [%s] [%s] ", behind.ID, op.ID),
			}, groups); diff != "" {
				t.Fatalf("while %s runs: stuck (-want +got):\n%s", name, diff)
			}
			if n, age := s.metric("keb_step_operations", "failing", "Second", "beta"), s.metric("keb_step_oldest_seconds", "failing", "Second", "beta"); n != 1 || age <= 0 {
				t.Fatalf("while %s runs: %g operations fail, the oldest for %g s", name, n, age)
			}
			proceed <- failure
		}
	}
	require.Equal(t, "First", <-running)
	proceed <- nil
	require.Equal(t, "Second", <-running)
	proceed <- nil
	s.await(op, event.Succeeded)
	s.await(behind, event.Succeeded)
}

// hangProcess has a step with a short execution limit.
var hangProcess = fstest.MapFS{"update.yaml": {Data: []byte(`
operation: update
timeout: 1h
stages:
  - name: change
    steps:
      - {name: Change, worker: alpha, execution: 2s, onTimeout: skip, retry: {every: 50ms, timeout: 10m}}
`)}}

// A worker that is alive and does not answer is visible soon after the execution limit of its step: docs/evidence.md has the time that it logs.
func TestCondition_Hang_IsVisible(t *testing.T) {
	s := measured(t)
	s.cfg.Processes, s.cfg.SweepEvery, s.cfg.AskWorkersEvery = hangProcess, 0, 0 // the defaults
	release := make(chan struct{})
	s.script.set("Change", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		<-release // without regard to its context
		return op, 0, nil
	})
	s.orchestrator()
	s.worker("alpha")
	t.Cleanup(func() { close(release) })
	testkit.Eventually(t, patience, "the worker is live", func() bool { return s.metric("keb_worker_step_served", "Change", "alpha") == 1 })
	var longest time.Duration
	for i := range 4 {
		op := operation(event.Update, fmt.Sprintf("i-%d", i), "azure")
		s.request(op)
		var limit time.Time
		testkit.Eventually(t, patience, "the step runs", func() bool {
			if s.state(op.ID) != event.InProgress {
				return false
			}
			w := s.waiting(op.ID)
			if w != nil && w.Reason == "executing" && time.Until(*w.Until) > time.Second {
				limit = *w.Until
			}
			return !limit.IsZero()
		})
		// The answers are cached. The cache is filled at different times before the limit.
		before := time.Duration(i+1) * 200 * time.Millisecond
		testkit.Eventually(t, patience, "the limit comes near", func() bool { return time.Until(limit) < before })
		testkit.Eventually(t, patience, "the hang is visible", func() bool {
			counted := false
			for _, g := range s.stuck() {
				counted = counted || g.Reason == "no_answer" && g.Count == i+1 && g.Step == "Change" && g.Error.Reason == "err_keb_no_answer"
			}
			return counted && s.metric("keb_step_operations", "no_answer", "Change", "alpha") == float64(i+1)
		})
		took := time.Since(limit)
		longest = max(longest, took)
		if w := s.waiting(op.ID); w.Reason != "no_answer" || w.Worker != "alpha" {
			t.Errorf("%s after the execution limit: %+v", took, w)
		}
	}
	t.Logf("visible at most %s after the execution limit", longest.Round(time.Millisecond))
	var o struct {
		StepAttempt int
		Budget      struct {
			Attempts, SecondsLeft int
			EndsAt                time.Time
			OnTimeout             string
		}
	}
	s.get("/operations/"+s.stuck()[0].Operations[0], &o)
	if left := time.Until(o.Budget.EndsAt); o.Budget.OnTimeout != "skip" || o.Budget.Attempts != 1 || o.Budget.SecondsLeft < 500 || o.Budget.SecondsLeft > 600 ||
		left > 10*time.Minute || left < 8*time.Minute {
		t.Errorf("budget: %+v", o.Budget)
	}
}
