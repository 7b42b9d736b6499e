package engine_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestCancel_EveryPosition_CancelsTheOperation(t *testing.T) {
	cancel := engine.Cancel{Reason: "preempted"}
	for _, c := range []struct {
		name string
		do   func(r *run)
	}{
		{"at once while pending", func(r *run) { r.must(cancel) }},
		{"at once while waiting", func(r *run) { r.must(engine.Start{}); r.retry(time.Minute); r.must(cancel) }},
		{"with the next success", func(r *run) { r.must(engine.Start{}); r.must(cancel); r.succeed() }},
		{"with the next retry", func(r *run) { r.must(engine.Start{}); r.must(cancel); r.retry(time.Second) }},
		{"with a lost stage", func(r *run) {
			r.must(engine.Start{})
			r.must(cancel)
			r.result(engine.Result{Outcome: event.OutcomeStageLost})
		}},
		{"with a step that is not completed", func(r *run) {
			r.must(engine.Start{})
			r.must(cancel)
			r.result(engine.Result{Outcome: event.OutcomeNotCompleted})
		}},
		{"with a spent budget and onTimeout skip", func(r *run) {
			r.must(engine.Start{})
			for range 3 {
				r.succeed()
			}
			r.must(cancel)
			r.now = r.now.Add(time.Minute)
			r.retry(time.Second)
		}},
		{"when the command is not answered", func(r *run) {
			r.must(engine.Start{})
			r.must(cancel)
			r.now = r.s.ExecuteBefore
			r.must(engine.Due{})
		}},
		{"when an operator skips the step", func(r *run) {
			r.must(engine.Start{})
			r.must(cancel)
			r.must(engine.SkipStep{Step: "A", By: "me"})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRun(t, load(t, provision))
			c.do(r)
			r.wantStatus(event.Cancelled)
			last := r.last.Facts[len(r.last.Facts)-1]
			if fact, ok := last.Payload.(*event.OperationCancelled); !ok || fact.Reason != "preempted" {
				t.Errorf("last fact is %+v", last)
			}
			r.reject(engine.ErrNotPossible, cancel)
		})
	}
}

func TestCancel_CommandInFlight_SavesItsResult(t *testing.T) {
	r := started(t, provision)
	r.must(engine.Cancel{Reason: "first"})
	r.wantStatus(event.InProgress)
	r.must(engine.Cancel{Reason: "second"})
	r.result(engine.Result{Outcome: event.OutcomeSucceeded, Details: json.RawMessage(`{"id":"x"}`)})
	r.wantStatus(event.Cancelled)
	if string(r.s.Details) != `{"alpha":{"id":"x"}}` || r.s.CancelReason != "first" {
		t.Errorf("details are %s and the reason is %q, want the id and %q", r.s.Details, r.s.CancelReason, "first")
	}
}

func TestCancel_StepFails_FailsTheOperation(t *testing.T) {
	r := started(t, provision)
	r.must(engine.Cancel{Reason: "preempted"})
	r.fail()
	r.wantStatus(event.Failed)
}

func TestRetry_FailedOperation_StartsAtTheFailedStage(t *testing.T) {
	r := started(t, provision)
	r.succeed()
	r.result(engine.Result{Outcome: event.OutcomeSucceeded, StageMemory: true})
	r.fail()
	r.wantStatus(event.Failed)
	if diff := cmp.Diff([]string{""}, r.last.PurgeStages); diff != "" {
		t.Errorf("purged (-want +got):\n%s", diff)
	}
	r.now = r.now.Add(3 * time.Hour)
	r.must(engine.Retry{By: "me"})
	r.wantStatus(event.Pending)
	r.must(engine.Start{})
	r.wantPosition("A", 2, 1)
	if !r.s.Deadline.Equal(r.now.Add(time.Hour)) {
		t.Errorf("deadline is %s, want 1h from now", r.s.Deadline)
	}
	for range 5 {
		r.succeed()
	}
	r.wantStatus(event.Succeeded)
	r.reject(engine.ErrNotPossible, engine.Retry{By: "me"})
}

func TestSkipStep_CurrentStep_RunsTheNextOne(t *testing.T) {
	r := started(t, provision)
	r.reject(engine.ErrNotPossible, engine.SkipStep{Step: "B", By: "me"})
	old := r.s.Cursor
	r.must(engine.SkipStep{Step: "A", By: "me"})
	r.wantPosition("B", 1, 1)
	r.reject(engine.ErrStale, engine.Result{Outcome: event.OutcomeSucceeded, Cursor: old})
	r.retry(time.Minute)
	r.must(engine.SkipStep{Step: "B", By: "me"})
	r.wantPosition("C", 1, 1)
	if diff := cmp.Diff([]string{"A", "B"}, r.s.NotCompleted); diff != "" {
		t.Errorf("not completed (-want +got):\n%s", diff)
	}
	r.fail()
	r.reject(engine.ErrNotPossible, engine.SkipStep{Step: "C", By: "me"})
}

func TestStart_CompletedSteps_AreNotRepeated(t *testing.T) {
	p := load(t, deprovision)
	r := newRun(t, p)
	r.must(engine.Start{})
	r.fail() // First is skipped
	r.succeed()
	r.fail() // Third fails the operation
	r.wantStatus(event.Failed)
	completed := r.s.CompletedSteps(p)
	if diff := cmp.Diff([]string{"Second"}, completed); diff != "" {
		t.Fatalf("completed (-want +got):\n%s", diff)
	}

	again := newRun(t, p)
	again.must(engine.Start{Completed: completed})
	again.wantPosition("First", 1, 1)
	again.succeed()
	again.wantPosition("Third", 1, 1)
	again.succeed()
	again.wantStatus(event.Succeeded)
	if diff := cmp.Diff([]string{"Second", "First", "Third"}, again.s.CompletedSteps(p)); diff != "" {
		t.Errorf("completed (-want +got):\n%s", diff)
	}
}

func TestStageEnd_UsedMemory_IsPurged(t *testing.T) {
	r := started(t, provision)
	r.result(engine.Result{Outcome: event.OutcomeSucceeded, StageMemory: true})
	r.succeed()
	r.succeed()
	if diff := cmp.Diff([]string{"create"}, r.last.PurgeStages); diff != "" {
		t.Errorf("purged (-want +got):\n%s", diff)
	}
	r.succeed()
	r.succeed()
	if len(r.last.PurgeStages) != 0 {
		t.Errorf("purged %v, want nothing", r.last.PurgeStages)
	}
}
