package engine_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// waiting has a step with a wait budget of 30 minutes and a retry budget of 5 minutes.
const waiting = `
operation: deprovision
timeout: 24h
stages:
  - name: check
    steps: [{name: Check, worker: alpha, onTimeout: skip, retry: {every: 10s, timeout: 5m, scope: step}, wait: {every: 1m, timeout: 30m}}]
  - name: remove
    steps: [{name: Remove, worker: beta, retry: {every: 10s, timeout: 5m}}]
`

// wait applies a retry result without an error.
func (r *run) wait() {
	r.t.Helper()
	r.result(engine.Result{Outcome: event.OutcomeRetry, Message: "the cluster is being deregistered"})
}

// wake advances the time until the operation is due.
func (r *run) wake() { r.t.Helper(); r.sleep(r.s.DueAt.Sub(r.now)) }

// until calls answer until the operation leaves the step or d has passed since its start.
func (r *run) until(d time.Duration, answer func()) {
	r.t.Helper()
	for step := r.s.Step; r.s.Status == event.InProgress && r.s.Stage == 0 && r.s.Step == step && r.now.Before(epoch.Add(d)); {
		answer()
		if r.s.Waiting() {
			r.wake()
		}
	}
}

func TestWait_NoErrors_LastsAsLongAsTheWaitBudget(t *testing.T) {
	r := started(t, waiting)
	r.until(time.Hour, r.wait)
	if got := r.now.Sub(epoch); got != 30*time.Minute {
		t.Errorf("the step waited for %s, want 30m", got)
	}
	r.wantPosition("Remove", 1, 1)
	e := r.last.History[0].Error
	if want := "Check has waited for 30m0s without success: the cluster is being deregistered"; e == nil || e.Message != want || e.Reason != "err_keb_timeout" {
		t.Errorf("error is %+v, want %q", e, want)
	}
}

func TestWait_UsesItsOwnPeriod_UnlessTheStepNamesATime(t *testing.T) {
	r := started(t, waiting)
	for _, c := range []struct {
		result engine.Result
		want   time.Duration
	}{
		{engine.Result{Outcome: event.OutcomeRetry}, time.Minute},
		{engine.Result{Outcome: event.OutcomeRetry, RetryAfter: 7 * time.Second}, 7 * time.Second},
		{engine.Result{Outcome: event.OutcomeRetry, Error: &event.Error{Message: "503"}}, 10 * time.Second},
		{engine.Result{Outcome: event.OutcomeRetry, RetryAfter: 8 * time.Second, Error: &event.Error{Message: "503"}}, 8 * time.Second},
	} {
		r.result(c.result)
		if got := r.s.DueAt.Sub(r.now); got != c.want {
			t.Errorf("%+v: due after %s, want %s", c.result, got, c.want)
		}
		r.wake()
	}
}

func TestWait_ErrorsOnly_EndWithTheRetryBudget(t *testing.T) {
	r := started(t, waiting)
	r.until(time.Hour, func() { r.retry(0) })
	if got := r.now.Sub(epoch); got != 5*time.Minute {
		t.Errorf("the step was retried for %s, want 5m", got)
	}
	if e := r.last.History[0].Error; e == nil || e.Message != "Check was retried for 5m0s without success: not yet" || e.Component != "ext" {
		t.Errorf("error is %+v", e)
	}
}

func TestWait_ErrorsAfterWaiting_HaveTheWholeRetryBudget(t *testing.T) {
	r := started(t, waiting)
	r.until(20*time.Minute, r.wait)
	r.until(time.Hour, func() { r.retry(0) })
	if got := r.now.Sub(epoch); got != 25*time.Minute {
		t.Errorf("the step ended after %s, want 20m of waiting and 5m of retries", got)
	}
}

func TestWait_SuccessfulCheck_ResetsTheRetryBudget(t *testing.T) {
	r := started(t, waiting)
	r.until(4*time.Minute, func() { r.retry(0) })
	r.wait()
	r.wake() // at 5 minutes after the first error
	failing := r.now
	r.until(time.Hour, func() { r.retry(0) })
	if got := r.now.Sub(failing); got != 5*time.Minute {
		t.Errorf("errors after a successful check were retried for %s, want 5m", got)
	}
}

func TestWait_ErrorsInBetween_DoNotStopTheWaitBudget(t *testing.T) {
	r := started(t, waiting)
	odd := true
	r.until(time.Hour, func() {
		if odd = !odd; odd {
			r.retry(time.Minute)
		} else {
			r.wait()
		}
	})
	if got := r.now.Sub(epoch); got < 30*time.Minute || got > 31*time.Minute {
		t.Errorf("the step ended after %s, want 30m or the next check", got)
	}
	want := "Check has waited for 30m0s without success: the cluster is being deregistered; its last error was of ext: not yet"
	if e := r.last.History[0].Error; e == nil || e.Message != want {
		t.Errorf("error is %+v, want %q", e, want)
	}
}

func TestWait_ErrorAfterTheWaitBudget_IsRetriedOnce(t *testing.T) {
	r := started(t, waiting)
	r.until(29*time.Minute, r.wait)
	r.until(31*time.Minute, func() { r.retry(0) })
	r.wantPosition("Check", 1, r.s.StepAttempt)
	r.wait()
	r.wantPosition("Remove", 1, 1)
}

func TestWait_Restart_KeepsBothBudgets(t *testing.T) {
	r := started(t, waiting)
	r.until(10*time.Minute, r.wait)
	r.retry(0)
	stored, err := json.Marshal(r.s.Tries)
	require.NoError(t, err)
	r.s.Tries = nil
	require.NoError(t, json.Unmarshal(stored, &r.s.Tries))
	r.wake()
	r.until(time.Hour, r.wait)
	if got := r.now.Sub(epoch); got != 30*time.Minute {
		t.Errorf("the step waited for %s, want 30m; stored was %s", got, stored)
	}
}

func TestWait_RepeatedStage_KeepsBothBudgets(t *testing.T) {
	r := started(t, strings.ReplaceAll(waiting, ", scope: step", ""))
	r.until(10*time.Minute, r.wait)
	r.result(engine.Result{Outcome: event.OutcomeStageLost})
	r.wake()
	r.until(time.Hour, r.wait)
	if got := r.now.Sub(epoch); got != 30*time.Minute {
		t.Errorf("the step waited for %s, want 30m", got)
	}
}

func TestWait_StepThatSucceeds_LeavesNoBudget(t *testing.T) {
	r := started(t, waiting)
	r.retry(0)
	r.wake()
	r.wait()
	r.wake()
	r.succeed()
	if len(r.s.Tries) > 0 {
		t.Errorf("tries are %+v, want none", r.s.Tries)
	}
}

func TestWait_WithoutTimeout_LastsUntilTheOperationTimesOut(t *testing.T) {
	r := started(t, strings.Replace(strings.Replace(waiting, ", timeout: 30m}", "}", 1), "onTimeout: skip, ", "", 1))
	r.until(48*time.Hour, r.wait)
	r.wantStatus(event.Failed)
	if got := r.now.Sub(epoch); got != 24*time.Hour {
		t.Errorf("the operation failed after %s, want 24h", got)
	}
}

func TestWait_OperatorRetry_GrantsNewBudgets(t *testing.T) {
	r := started(t, strings.Replace(waiting, "onTimeout: skip, ", "", 1))
	r.until(time.Hour, r.wait)
	r.wantStatus(event.Failed)
	again := r.now
	r.must(engine.Retry{By: "me"})
	r.must(engine.Start{})
	r.until(2*time.Hour, r.wait)
	if got := r.now.Sub(again); got != 30*time.Minute {
		t.Errorf("the step waited for %s after the retry, want 30m", got)
	}
}
