package engine_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// atC returns an operation with a finally stage, at its third step.
func atC(t *testing.T) *run {
	t.Helper()
	r := started(t, provision+finally)
	r.succeed()
	r.succeed()
	r.wantPosition("C", 1, 1)
	return r
}

func TestFinally_EveryEnding_RunsTheStage(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(r *run)
		want event.OperationState
	}{
		{"when all stages are finished", func(r *run) { r.succeed(); r.succeed(); r.succeed() }, event.Succeeded},
		{"when a step fails", func(r *run) { r.fail() }, event.Failed},
		{"when a budget is spent", func(r *run) { r.now = r.now.Add(10 * time.Minute); r.retry(0) }, event.Failed},
		{"when the operation times out", func(r *run) { r.now = r.s.Deadline; r.sleep(0) }, event.Failed},
		{"when it is cancelled while a command is out", func(r *run) { r.must(engine.Cancel{Reason: "not wanted"}); r.succeed() }, event.Cancelled},
		{"when it is cancelled while it waits", func(r *run) { r.retry(0); r.must(engine.Cancel{Reason: "not wanted"}) }, event.Cancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := atC(t)
			c.end(r)
			at := r.s.Position(r.p)
			if at == nil || at.Stage != process.StageFinally || at.Step != "Restore" || r.last.Finished {
				t.Fatalf("the operation is %s at %+v", r.s.Status, at)
			}
			r.succeed()
			r.succeed()
			r.wantStatus(c.want)
			if !r.last.Finished || r.s.Ending != nil {
				t.Errorf("finished %t, ending %+v", r.last.Finished, r.s.Ending)
			}
			if r.s.Error != nil && r.s.Error.Message == "" {
				t.Error("the error has no message")
			}
		})
	}
}

func TestFinally_FailedOperation_KeepsPositionAndReason(t *testing.T) {
	r := atC(t)
	r.fail()
	r.result(engine.Result{Outcome: event.OutcomeFailed, Error: &event.Error{Message: "another problem"}}) // Restore is skipped
	r.succeed()
	r.wantStatus(event.Failed)
	failed := r.last.Facts[len(r.last.Facts)-1].Payload.(*event.OperationFailed)
	if failed.Step != "C" || failed.Error.Message != "it broke" || r.s.Error.Message != "it broke" {
		t.Errorf("failed at %s: %+v", failed.Step, failed.Error)
	}
	if diff := cmp.Diff([]string{"Restore"}, r.s.NotCompleted); diff != "" {
		t.Errorf("not completed (-want +got):\n%s", diff)
	}
	want := []string{"C failed", "operation ending", "Restore not completed", "Notify succeeded", "operation failed"}
	if got := r.lines[len(r.lines)-5:]; !slices.Equal(got, want) {
		t.Errorf("history %v, want %v", got, want)
	}
	r.must(engine.Retry{By: "me"})
	r.must(engine.Start{})
	r.wantPosition("A", 2, 1)
}

func TestFinally_TimeLimitReached_SkipsTheRest(t *testing.T) {
	r := started(t, `
operation: provision
timeout: 1h
stages:
  - {name: a, steps: [{name: A, worker: alpha, execution: 30s}]}
finally:
  - {name: F1, worker: alpha, retry: {timeout: 5m}}
  - {name: F2, worker: alpha, retry: {timeout: 5m}}
  - {name: F3, worker: alpha, retry: {timeout: 5m}}
  - {name: F4, worker: alpha, retry: {timeout: 5m}}
`)
	r.now = r.s.Deadline
	r.sleep(0)
	if want := r.now.Add(process.MaxFinally); !r.s.Deadline.Equal(want) {
		t.Fatalf("deadline of the finally stage is %s, want %s", r.s.Deadline, want)
	}
	for r.s.Status == event.InProgress && r.now.Before(epoch.Add(3*time.Hour)) {
		r.now = r.s.ExecuteBefore
		r.must(engine.Due{WorkerAlive: false})
	}
	r.wantStatus(event.Failed)
	if want := epoch.Add(time.Hour + process.MaxFinally); !r.now.Equal(want) {
		t.Errorf("finally stage ended at %s, want %s", r.now, want)
	}
	if diff := cmp.Diff([]string{"F1", "F2", "F3", "F4"}, r.s.NotCompleted); diff != "" {
		t.Errorf("not completed (-want +got):\n%s", diff)
	}
}

func TestCancel_FinallyStageRuns_IsRejected(t *testing.T) {
	r := atC(t)
	r.succeed()
	r.succeed()
	r.succeed()
	r.reject(engine.ErrNotPossible, engine.Cancel{Reason: "too late"})
	r.succeed()
	r.succeed()
	r.wantStatus(event.Succeeded)
}

func TestFinally_PendingOperationCancelled_DoesNotRun(t *testing.T) {
	r := newRun(t, load(t, provision+finally))
	r.must(engine.Cancel{Reason: "not wanted"})
	r.wantStatus(event.Cancelled)
}

func TestCompletedSteps_FinallyStage_IsNotIncluded(t *testing.T) {
	r := started(t, deprovision+finally)
	r.fail() // First is skipped
	for range 4 {
		r.succeed()
	}
	r.wantStatus(event.Succeeded)
	completed := r.s.CompletedSteps(r.p)
	if diff := cmp.Diff([]string{"Second", "Third"}, completed); diff != "" {
		t.Errorf("completed (-want +got):\n%s", diff)
	}
	again := newRun(t, r.p)
	again.must(engine.Start{Completed: completed})
	again.wantPosition("First", 1, 1)
	again.succeed()
	again.wantPosition("Restore", 1, 1)
}

func TestFinally_InvalidDetails_OperationStillEnds(t *testing.T) {
	for name, patch := range map[string]string{
		"too large":    `{"a":"` + strings.Repeat("a", event.MaxDetails) + `"}`,
		"no object":    `["a"]`,
		"invalid JSON": `{"a":`,
	} {
		t.Run(name, func(t *testing.T) {
			r := atC(t)
			r.fail()
			before := r.s.Details
			r.result(engine.Result{Outcome: event.OutcomeSucceeded, Details: json.RawMessage(patch)})
			r.wantPosition("Notify", 1, 1)
			r.result(engine.Result{Outcome: event.OutcomeStageLost, Details: json.RawMessage(patch)})
			r.wantStatus(event.Failed)
			if diff := cmp.Diff([]string{"Restore", "Notify"}, r.s.NotCompleted); diff != "" || !bytes.Equal(before, r.s.Details) {
				t.Errorf("details %.50s, not completed (-want +got):\n%s", r.s.Details, diff)
			}
			if r.s.Error.Message != "it broke" {
				t.Errorf("failed because of %+v", r.s.Error)
			}
		})
	}
}

func TestSkipStep_FinallyStage_EndsTheOperation(t *testing.T) {
	r := atC(t)
	r.must(engine.Cancel{Reason: "not wanted"})
	r.must(engine.SkipStep{Step: "C", By: "me"})
	r.wantPosition("Restore", 1, 1)
	r.reject(engine.ErrNotPossible, engine.SkipStep{Step: "C", By: "me"})
	r.reject(engine.ErrNotPossible, engine.Retry{By: "me"})
	r.retry(0)
	r.must(engine.SkipStep{Step: "Restore", By: "me"})
	r.must(engine.SkipStep{Step: "Notify", By: "me"})
	r.wantStatus(event.Cancelled)
	if diff := cmp.Diff([]string{"C", "Restore", "Notify"}, r.s.NotCompleted); diff != "" {
		t.Errorf("not completed (-want +got):\n%s", diff)
	}
	if r.s.Error.Message != "not wanted" {
		t.Errorf("cancelled because of %+v", r.s.Error)
	}
}

// The stage memory is kept per attempt. Memory of an earlier run may still exist if it could not be purged.
func TestFinally_RetriedOperation_HasNewStageAttempt(t *testing.T) {
	r := atC(t)
	r.fail()
	r.wantPosition("Restore", 1, 1)
	r.result(engine.Result{Outcome: event.OutcomeStageLost})
	r.sleep(time.Second)
	r.wantPosition("Restore", 2, 2)
	r.succeed()
	r.succeed()
	r.wantStatus(event.Failed)
	r.must(engine.Retry{By: "me"})
	r.must(engine.Start{})
	for _, step := range []string{"A", "B", "C", "D", "E"} {
		if at := r.s.Position(r.p); at == nil || at.Step != step {
			t.Fatalf("the operation is at %+v, want %s", at, step)
		}
		r.succeed()
	}
	r.wantPosition("Restore", 3, 1)
	r.succeed()
	r.succeed()
	r.wantStatus(event.Succeeded)
}

func TestFinally_TimeLimitReached_PurgesStageMemory(t *testing.T) {
	r := atC(t)
	r.fail()
	r.result(engine.Result{Outcome: event.OutcomeRetry, StageMemory: true})
	r.sleep(10 * time.Second)
	r.wantPosition("Restore", 2, 2)
	r.now = r.s.Deadline
	r.sleep(0)
	r.wantStatus(event.Failed)
	if !slices.Contains(r.last.PurgeStages, process.StageFinally) && !slices.Contains(r.last.PurgeStages, "") {
		t.Errorf("purged %q, want the finally stage", r.last.PurgeStages)
	}
}
