package engine_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestApply_WholeOperation_RecordsEveryTransition(t *testing.T) {
	r := started(t, provision)
	r.wantPosition("A", 1, 1)
	for range 5 {
		r.succeed()
	}
	r.wantStatus(event.Succeeded)
	wantLines := []string{
		"operation started", "Starting succeeded", "A succeeded", "B succeeded", "C succeeded", "D succeeded", "E succeeded", "operation succeeded",
	}
	if diff := cmp.Diff(wantLines, r.lines); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	step, stage := string(event.TypeStepFinished), string(event.TypeStageFinished)
	wantFacts := []string{
		string(event.TypeOperationStarted), step, stage, step, step, step, stage, step, step, stage, string(event.TypeOperationSucceeded),
	}
	if diff := cmp.Diff(wantFacts, r.facts); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

func TestCommand_StartedOperation_FollowsFromTheState(t *testing.T) {
	r := newRun(t, load(t, provision))
	r.must(engine.Start{Details: json.RawMessage(`{"alpha":{"id":1}}`)})
	worker, got := engine.Command(r.p, &r.s)
	want := event.StepExecute{
		Operation: r.s.Operation, Details: json.RawMessage(`{"alpha":{"id":1}}`), Stage: "create", Step: "A", Cursor: r.s.Cursor,
		Dispatch: 1, StageAttempt: 1, StepAttempt: 1, FirstTriedAt: epoch, ExecuteBefore: epoch.Add(time.Minute),
	}
	if diff := cmp.Diff(want, got); diff != "" || worker != "alpha" {
		t.Errorf("command for %s (-want +got):\n%s", worker, diff)
	}
}

func TestFacts_Transition_NamesTheNextStep(t *testing.T) {
	r := started(t, provision)
	first := r.last.Facts[0].Payload.(*event.OperationStarted)
	if first.Next == nil || first.Next.Step != "A" {
		t.Errorf("started: next is %+v, want A", first.Next)
	}
	r.succeed()
	second := r.last.Facts[0].Payload.(*event.StepFinished)
	if second.Step != "A" || second.Next == nil || second.Next.Step != "B" || second.Cursor != r.s.Cursor {
		t.Errorf("finished: %+v, next %+v", second, second.Next)
	}
}

func TestCondition_False_RecordsASkippedStep(t *testing.T) {
	r := newRun(t, load(t, provision))
	r.s.Operation.Plan.Name = "trial"
	r.must(engine.Start{})
	for range 4 {
		r.succeed()
	}
	r.wantStatus(event.Succeeded)
	if got := r.lines[len(r.lines)-3]; got != "D skipped" {
		t.Errorf("history has %q, want the skipped step", got)
	}
}

func TestCondition_EvaluationFails_FollowsOnFailure(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		want         event.OperationState
	}{
		{"onFailure is not set", "", event.Failed},
		{"onFailure is skip", ", onFailure: skip", event.Succeeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := started(t, `
operation: update
stages:
  - name: s
    steps: [{name: X, worker: alpha, when: 'details.alpha.id == 1'`+c.policy+`}]
`)
			r.wantStatus(c.want)
			if c.want == event.Failed && (r.s.Error == nil || r.s.Error.Reason != "err_keb_condition") {
				t.Errorf("error is %+v", r.s.Error)
			}
			if c.want == event.Succeeded && len(r.s.NotCompleted) != 1 {
				t.Errorf("not completed: %v", r.s.NotCompleted)
			}
		})
	}
}

func TestSkipped_ReportedByWorker_CountsAsCompleted(t *testing.T) {
	r := started(t, provision)
	r.result(engine.Result{Outcome: event.OutcomeSkipped, Message: "nothing to do"})
	r.wantPosition("B", 1, 1)
	if len(r.s.NotCompleted) != 0 {
		t.Errorf("not completed: %v", r.s.NotCompleted)
	}
}

func TestStart_OperationInProgress_IsRejected(t *testing.T) {
	r := started(t, provision)
	r.reject(engine.ErrNotPossible, engine.Start{})
}

func TestApply_UnknownEvent_IsRejected(t *testing.T) {
	r := started(t, provision)
	r.reject(engine.ErrNotPossible, nil)
}
