package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestRetry_StageScope_RestartsStageWithEmptyMemory(t *testing.T) {
	r := started(t, provision)
	r.result(engine.Result{Outcome: event.OutcomeSucceeded, StageMemory: true})
	if _, c := engine.Command(r.p, &r.s); !c.StageMemory {
		t.Error("the command does not report that the stage memory is used")
	}
	r.retry(20 * time.Second)
	if want := r.now.Add(20 * time.Second); !r.s.DueAt.Equal(want) {
		t.Errorf("due at %s, want %s", r.s.DueAt, want)
	}
	r.now = r.now.Add(19 * time.Second)
	r.reject(engine.ErrNotPossible, engine.Due{WorkerAlive: true})
	r.sleep(time.Second)
	r.wantPosition("A", 2, 1)
	if _, c := engine.Command(r.p, &r.s); c.StageMemory {
		t.Error("the repeated stage starts with used memory")
	}
	r.succeed()
	r.wantPosition("B", 2, 2)
}

func TestRetry_StepScope_RepeatsStepAndKeepsMemory(t *testing.T) {
	r := started(t, provision)
	r.succeed()
	r.result(engine.Result{Outcome: event.OutcomeSucceeded, StageMemory: true})
	r.retry(0)
	if want := r.now.Add(30 * time.Second); !r.s.DueAt.Equal(want) {
		t.Errorf("due at %s, want %s from the process definition", r.s.DueAt, want)
	}
	r.sleep(30 * time.Second)
	r.wantPosition("C", 1, 2)
	if _, c := engine.Command(r.p, &r.s); !c.StageMemory {
		t.Error("the stage memory was dropped")
	}
}

func TestRetry_LaterStage_DoesNotRepeatFinishedStages(t *testing.T) {
	r := started(t, provision)
	for range 4 {
		r.succeed()
	}
	r.retry(time.Second)
	r.sleep(time.Second)
	r.wantPosition("D", 2, 1)
}

func TestBudget_RetriedStep_CountsFromItsFirstTry(t *testing.T) {
	r := started(t, provision)
	r.succeed()
	first := r.now
	for r.s.Status == event.InProgress {
		r.retry(50 * time.Second)
		if r.s.Status != event.InProgress {
			break
		}
		if r.s.DueAt.After(first.Add(5 * time.Minute)) {
			t.Fatalf("due at %s, after the end of the budget", r.s.DueAt)
		}
		r.sleep(r.s.DueAt.Sub(r.now))
		r.succeed() // A starts with a new budget each time
	}
	r.wantStatus(event.Failed)
	if got := r.now.Sub(first); got != 5*time.Minute {
		t.Errorf("the operation failed after %s, want the budget of 5m", got)
	}
	if e := r.s.Error; e == nil || e.Reason != "err_keb_timeout" || e.Component != "ext" || !strings.HasSuffix(e.Message, "not yet") {
		t.Errorf("error is %+v, want the timeout with the last error of the external system", r.s.Error)
	}
}

func TestBudget_StepSucceeded_StartsAgain(t *testing.T) {
	r := started(t, provision)
	r.succeed()
	for range 5 {
		r.retry(50 * time.Second)
		r.sleep(50 * time.Second)
		r.wantPosition("A", r.s.StageAttempt, 1)
		if _, c := engine.Command(r.p, &r.s); !c.FirstTriedAt.Equal(r.now) {
			t.Fatalf("A was first tried at %s, want now", c.FirstTriedAt)
		}
		r.succeed()
	}
	if _, c := engine.Command(r.p, &r.s); !c.FirstTriedAt.Equal(epoch) || c.StepAttempt != 6 {
		t.Errorf("B was first tried at %s, attempt %d; want its first try at %s, attempt 6", c.FirstTriedAt, c.StepAttempt, epoch)
	}
}

func TestBudget_SpentWithOnTimeoutSkip_SkipsTheStep(t *testing.T) {
	r := started(t, provision)
	for range 3 {
		r.succeed()
	}
	r.retry(2 * time.Minute)
	r.sleep(time.Minute)
	r.retry(time.Second)
	r.wantPosition("E", 2, 1)
	if diff := cmp.Diff([]string{"D"}, r.s.NotCompleted); diff != "" {
		t.Errorf("not completed (-want +got):\n%s", diff)
	}
	r.succeed()
	r.wantStatus(event.Succeeded)
	done := r.last.Facts[len(r.last.Facts)-1].Payload.(*event.OperationSucceeded)
	if diff := cmp.Diff([]string{"D"}, done.NotCompleted); diff != "" {
		t.Errorf("not completed in the fact (-want +got):\n%s", diff)
	}
}

func TestBudget_None_RetriesUntilTheOperationTimesOut(t *testing.T) {
	r := started(t, provision)
	for range 4 {
		r.succeed()
	}
	r.wantPosition("E", 1, 1)
	r.retry(2 * time.Hour)
	if !r.s.DueAt.Equal(r.s.Deadline) {
		t.Errorf("due at %s, want the deadline %s", r.s.DueAt, r.s.Deadline)
	}
	r.sleep(time.Hour)
	r.wantStatus(event.Failed)
	if e := r.s.Error; e.Reason != "err_keb_timeout" || !strings.Contains(e.Message, "time limit of 1h0m0s in step E of stage finish: not yet") {
		t.Errorf("error is %+v", e)
	}
}

func TestBudget_SpentWithoutError_ReportsTheMessage(t *testing.T) {
	r := started(t, provision)
	r.now = r.now.Add(5 * time.Minute)
	r.result(engine.Result{Outcome: event.OutcomeRetry, Message: "still creating"})
	r.wantStatus(event.Failed)
	if !strings.HasSuffix(r.s.Error.Message, ": still creating") || r.s.Error.Component != "alpha" {
		t.Errorf("error is %+v", r.s.Error)
	}
}

func TestStageLost_EveryStep_RepeatsTheStage(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps int // succeeded before
		want  string
	}{
		{"in its first step", 0, "A"},
		{"in a later step", 1, "A"},
		{"in a step with the scope step", 2, "A"},
		{"in the last stage", 3, "D"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := started(t, provision)
			for range c.steps {
				r.result(engine.Result{Outcome: event.OutcomeSucceeded, StageMemory: true})
			}
			r.result(engine.Result{Outcome: event.OutcomeStageLost})
			if !r.s.Waiting() || r.s.Message == "" {
				t.Fatalf("the stage is repeated without a pause or a message: %+v", r.s)
			}
			r.sleep(time.Second)
			attempt := 1
			if c.steps == 0 || c.steps == 3 {
				attempt = 2 // the step was tried before and has not succeeded
			}
			r.wantPosition(c.want, 2, attempt)
			if r.s.StageMemory {
				t.Error("the repeated stage starts with used memory")
			}
		})
	}
}

func TestFailedStep_FailsTheOperationWithItsError(t *testing.T) {
	r := started(t, provision)
	r.fail()
	r.wantStatus(event.Failed)
	if diff := cmp.Diff(&event.Error{Component: "ext", Reason: "broken", Message: "it broke"}, r.s.Error); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	failed := r.last.Facts[len(r.last.Facts)-1].Payload.(*event.OperationFailed)
	if failed.Stage != "create" || failed.Step != "A" || failed.Error.Message != "it broke" {
		t.Errorf("the fact is %+v, want step A of stage create", failed)
	}
}

func TestFailedStep_OnFailureSkip_RunsTheNextStep(t *testing.T) {
	r := started(t, provision)
	for range 3 {
		r.succeed()
	}
	r.fail()
	r.wantPosition("E", 1, 1)
	if r.lines[len(r.lines)-1] != "D not completed" {
		t.Errorf("history is %v, want D not completed at its end", r.lines)
	}
}

func TestNotCompleted_ReportedByWorker_RunsTheNextStep(t *testing.T) {
	r := started(t, provision)
	r.result(engine.Result{Outcome: event.OutcomeNotCompleted, Error: &event.Error{Message: "gave up"}})
	r.wantPosition("B", 1, 1)
	if diff := cmp.Diff([]string{"A"}, r.s.NotCompleted); diff != "" {
		t.Errorf("not completed (-want +got):\n%s", diff)
	}
}

func TestFailedStep_NoReasonOrUnknownOutcome_HasAnError(t *testing.T) {
	for _, outcome := range []event.Outcome{event.OutcomeFailed, "from the future"} {
		r := started(t, provision)
		r.result(engine.Result{Outcome: outcome})
		r.wantStatus(event.Failed)
		if r.s.Error == nil || r.s.Error.Message == "" {
			t.Errorf("%s: error is %+v", outcome, r.s.Error)
		}
	}
}

func TestBudget_SpentAndStageRepeated_StaysSpent(t *testing.T) {
	r := started(t, provision)
	for range 3 {
		r.succeed()
	}
	r.wantPosition("D", 1, 1)
	r.now = r.now.Add(time.Minute)
	r.retry(0) // the budget of D is spent
	r.wantPosition("E", 1, 1)
	r.retry(time.Second)
	r.sleep(time.Second)
	r.wantPosition("D", 2, 2)
	r.retry(0)
	r.wantPosition("E", 2, 2)
}
