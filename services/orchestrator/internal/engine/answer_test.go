package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// unlimited has a step without a retry budget.
const unlimited = `
operation: provision
timeout: 1h
stages:
  - {name: a, steps: [{name: A, worker: alpha, execution: 1m}]}
`

// hang lets the execution limit of the command pass.
func (r *run) hang(workerAlive bool) {
	r.t.Helper()
	r.now = r.s.ExecuteBefore
	r.must(engine.Due{WorkerAlive: workerAlive})
}

func (r *run) wantError(reason, text string) {
	r.t.Helper()
	if e := r.s.Error; e == nil || e.Reason != reason || !strings.Contains(e.Message, text) {
		r.t.Errorf("error is %+v, want %s with %q", e, reason, text)
	}
}

func (r *run) wantCondition(want engine.Condition, since time.Time) {
	r.t.Helper()
	if r.s.Condition != want || !r.s.ConditionSince.Equal(since) {
		r.t.Errorf("condition is %q since %s, want %q since %s", r.s.Condition, r.s.ConditionSince, want, since)
	}
}

func TestNoAnswer_IsAFailedTryOfTheSameCommand(t *testing.T) {
	r := started(t, provision)
	cursor := r.s.Cursor
	r.now = r.now.Add(time.Minute - 1)
	r.reject(engine.ErrNotPossible, engine.Due{WorkerAlive: true})
	for n := 2; n <= 3; n++ {
		r.hang(true)
		if _, c := engine.Command(r.p, &r.s); c.Cursor != cursor || c.Dispatch != n || !c.ExecuteBefore.Equal(r.now.Add(time.Minute)) || !r.last.Dispatch {
			t.Errorf("command is %+v, dispatched %t", c, r.last.Dispatch)
		}
		if len(r.last.History) != 1 || len(r.last.Facts) != 1 || r.last.History[0].Cursor != r.s.Cursor || r.s.Cursor == cursor {
			t.Errorf("no answer leaves %+v at cursor %d", r.last, r.s.Cursor)
		}
	}
	r.wantCondition(engine.NoAnswer, epoch)
	r.wantError("err_keb_no_answer", "has not answered within 1m0s")
	if got, want := r.lines[len(r.lines)-2:], []string{"A no answer", "A no answer"}; !slices.Equal(got, want) {
		t.Errorf("history %v, want %v", got, want)
	}
	r.reject(engine.ErrStale, engine.Result{Outcome: event.OutcomeSucceeded, Cursor: r.s.Cursor})
	r.succeed() // the late result of a slow worker
	r.wantPosition("B", 1, 1)
	r.wantCondition("", time.Time{})
	if r.s.CommandCursor != 0 || r.s.AwaitedCursor() != r.s.Cursor {
		t.Errorf("the next command has cursor %d, want %d", r.s.AwaitedCursor(), r.s.Cursor)
	}
}

func TestNoAnswer_CountsAgainstTheBudget(t *testing.T) {
	r := started(t, provision)
	for r.s.Status == event.InProgress {
		r.hang(true)
	}
	r.wantStatus(event.Failed)
	r.wantError("err_keb_no_answer", "A was retried for 5m0s without success: the worker has not answered")
	if got := r.now.Sub(epoch); got != 5*time.Minute {
		t.Errorf("failed after %s, want the budget of 5m", got)
	}
}

func TestNoAnswer_OnTimeoutSkip_GoesOn(t *testing.T) {
	for name, alive := range map[string]bool{"hanging worker": true, "no worker": false} {
		t.Run(name, func(t *testing.T) {
			r := started(t, deprovision)
			cursor := r.s.AwaitedCursor()
			for r.s.Stage == 1 {
				r.hang(alive)
			}
			if got := r.now.Sub(epoch); got < 5*time.Minute || got > 6*time.Minute {
				t.Errorf("skipped after %s, want 5m and at most one execution", got)
			}
			if diff := cmp.Diff([]string{"First"}, r.s.NotCompleted); diff != "" {
				t.Errorf("not completed (-want +got):\n%s", diff)
			}
			r.wantPosition("Second", 1, 1)
			r.wantCondition("", time.Time{})
			r.reject(engine.ErrStale, engine.Result{Outcome: event.OutcomeSucceeded, Cursor: cursor})
		})
	}
}

// A single loss, for example of a killed worker, must not fail a step with a short budget.
func TestNoAnswer_ShortBudget_IsSentTwice(t *testing.T) {
	r := started(t, `
operation: provision
stages:
  - {name: a, steps: [{name: A, worker: alpha, execution: 1m, retry: {timeout: 1m}}]}
`)
	r.hang(true)
	if !r.last.Dispatch || r.s.Dispatch != 2 {
		t.Fatalf("dispatch %d, sent %t; want dispatch 2", r.s.Dispatch, r.last.Dispatch)
	}
	r.hang(true)
	r.wantStatus(event.Failed)
}

func TestNoAnswer_StepWithWait_CountsAsError(t *testing.T) {
	r := started(t, waiting)
	r.wait()
	r.wake()
	sent := r.now
	for r.s.Stage == 0 {
		r.hang(true)
	}
	if got := r.now.Sub(sent); got != 5*time.Minute {
		t.Errorf("skipped %s after the first command without an answer, want 5m", got)
	}
}

func TestNoAnswer_WithoutBudget_EndsWithTheOperation(t *testing.T) {
	r := started(t, unlimited)
	for r.s.Status == event.InProgress {
		r.hang(true)
	}
	r.wantStatus(event.Failed)
	if got := r.now.Sub(epoch); got != time.Hour {
		t.Errorf("operation timed out after %s, want 1h", got)
	}
}

func TestNoWorker_SendsNothingAndSpendsTheBudget(t *testing.T) {
	r := started(t, provision)
	for r.s.Status == event.InProgress {
		r.hang(false)
		if r.last.Dispatch || !r.last.Changed {
			t.Fatalf("effects are %+v", r.last)
		}
	}
	if got := r.now.Sub(epoch); got < 5*time.Minute || got > 5*time.Minute+10*time.Second {
		t.Errorf("failed after %s, want 5m", got)
	}
	r.wantError("err_keb_no_worker", "no live worker alpha serves the step")
}

func TestNoWorker_Wait_KeepsTheBudget(t *testing.T) {
	r := started(t, `
operation: deprovision
timeout: 24h
stages:
  - {name: a, steps: [{name: A, worker: alpha, execution: 1m, retry: {timeout: 5m}, noWorker: wait}]}
`)
	for range 1000 {
		r.hang(false)
	}
	r.hang(true)
	if !r.s.SentAt.Equal(epoch) {
		t.Errorf("sent at %s, want %s", r.s.SentAt, epoch)
	}
	r.retry(time.Second)
	if !r.s.Waiting() {
		t.Errorf("the time without a worker counts against the budget: %+v", r.s.Error)
	}
}

// The condition must not change while the next try is executing, nor while the stage is repeated.
func TestCondition_LastsUntilTheStepIsDone(t *testing.T) {
	r := started(t, provision)
	r.wantCondition("", time.Time{})
	r.succeed()
	r.now = r.now.Add(time.Second)
	failedAt := r.now
	r.retry(10 * time.Second) // B
	for range 3 {
		r.wantCondition(engine.Failing, failedAt)
		r.wake()
		r.wantPosition("A", r.s.StageAttempt, 1)
		r.wantCondition(engine.Failing, failedAt)
		r.succeed()
		r.wantCondition(engine.Failing, failedAt)
		r.retry(10 * time.Second)
	}
	r.wake()
	r.succeed()
	r.succeed()
	r.wantPosition("C", r.s.StageAttempt, 1)
	r.wantCondition("", time.Time{})
	r.wait()
	polled := r.now
	r.wantCondition(engine.Polling, polled)
	r.wake()
	r.wantCondition(engine.Polling, polled)
	r.wait()
	r.wantCondition(engine.Polling, polled)
	r.wake()
	r.retry(time.Second)
	r.wantCondition(engine.Failing, r.now)
	r.wake()
	r.fail()
	r.wantCondition("", time.Time{})
}
