package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestSkip_RepeatedStage_SkipsTheStepAgain(t *testing.T) {
	for name, repeat := range map[string]func(r *run){
		"by a retry of a later step": func(r *run) { r.retry(time.Second); r.sleep(time.Second) },
		"after the stage memory was lost": func(r *run) {
			r.result(engine.Result{Outcome: event.OutcomeStageLost})
			r.sleep(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := started(t, provision)
			r.retry(time.Second)
			before := r.s
			r.must(engine.SkipStep{Step: "A", By: "ann"})
			for attempt := 2; attempt <= 4; attempt++ {
				repeat(r)
				if got := r.lines[len(r.lines)-1]; got != "A skipped" {
					t.Fatalf("the history ends with %q, want A skipped", got)
				}
				last := r.last.History[len(r.last.History)-1]
				if last.Message != "skipped by ann" || last.StageAttempt != attempt {
					t.Errorf("attempt %d of the stage has the entry %+v, want skipped by ann", attempt, last)
				}
				r.wantPosition("B", attempt, r.s.StepAttempt)
			}
			if diff := cmp.Diff([]string{"A"}, r.s.NotCompleted); diff != "" {
				t.Errorf("not completed (-want +got):\n%s", diff)
			}
			if before.Skipped != nil {
				t.Errorf("the previous state was modified: %v", before.Skipped)
			}
		})
	}
}

func TestSkip_SeveralSteps_AreSkippedAgain(t *testing.T) {
	r := started(t, provision)
	r.must(engine.SkipStep{Step: "A", By: "ann"})
	r.must(engine.SkipStep{Step: "B", By: "ben"})
	r.result(engine.Result{Outcome: event.OutcomeStageLost})
	r.sleep(time.Second)
	r.wantPosition("C", 2, 2)
	var messages []string
	for _, h := range r.last.History {
		messages = append(messages, h.Message)
	}
	if diff := cmp.Diff([]string{"skipped by ann", "skipped by ben"}, messages); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

func TestSkip_EndOfStageOrRetry_EndsIt(t *testing.T) {
	t.Run("end of the stage", func(t *testing.T) {
		r := started(t, provision)
		r.must(engine.SkipStep{Step: "A", By: "ann"})
		r.succeed()
		r.succeed()
		if r.s.Skipped != nil {
			t.Errorf("skipped steps after the stage: %v", r.s.Skipped)
		}
	})
	t.Run("retry by an operator", func(t *testing.T) {
		r := started(t, provision)
		r.must(engine.SkipStep{Step: "A", By: "ann"})
		r.fail()
		r.must(engine.Retry{By: "me"})
		r.must(engine.Start{})
		r.wantPosition("A", 2, 1)
	})
	t.Run("finally stage", func(t *testing.T) {
		r := started(t, provision+finally)
		r.must(engine.SkipStep{Step: "A", By: "ann"})
		r.fail()
		if r.s.Skipped != nil {
			t.Errorf("skipped steps in the finally stage: %v", r.s.Skipped)
		}
	})
}

// failedAtE returns an operation that has failed in its last stage; its stage create ran three times.
func failedAtE(t *testing.T, yaml string) *run {
	t.Helper()
	r := started(t, yaml)
	for range 2 {
		r.retry(time.Second)
		r.sleep(time.Second)
	}
	for range 4 {
		r.succeed()
	}
	r.wantPosition("E", 1, 1)
	r.fail()
	return r
}

func TestRetry_EarlierStage_RunsItAndTheNextOnesAgain(t *testing.T) {
	r := failedAtE(t, provision)
	r.retryFrom("create")
	r.wantPosition("A", 4, 1)
	if _, c := engine.Command(r.p, &r.s); c.StageMemory || !c.FirstTriedAt.Equal(r.now) {
		t.Errorf("the command is %+v, want an empty memory and a new budget", c)
	}
	for range 3 {
		r.succeed()
	}
	r.wantPosition("D", 4, 1) // above every attempt that any stage has used
	r.succeed()
	r.succeed()
	r.wantStatus(event.Succeeded)
}

func TestRetry_EarlierStageTwice_NeverUsesAnAttemptAgain(t *testing.T) {
	r := failedAtE(t, provision)
	r.retryFrom("create")
	r.succeed()
	r.retry(time.Second)
	r.sleep(time.Second) // attempt 5
	for range 3 {
		r.succeed()
	}
	r.wantPosition("D", 4, 1)
	r.succeed()
	r.fail()
	r.retryFrom("create")
	r.wantPosition("A", 6, 1)
	r.fail()
	r.retryFrom("start") // Starting runs inside the transition
	r.wantPosition("A", 7, 1)
}

func TestRetry_EarlierStage_IsInTheHistory(t *testing.T) {
	r := failedAtE(t, provision)
	r.must(engine.Retry{By: "ann", Stage: "create"})
	const want = "retried by ann from the stage create; run again: create, finish"
	if h := r.last.History; len(h) != 1 || h[0].Kind != engine.KindRetried || h[0].Message != want {
		t.Errorf("history %+v, want %q", h, want)
	}
}

func TestRetry_FailedStageNamed_IsAnOrdinaryRetry(t *testing.T) {
	r := failedAtE(t, provision)
	r.must(engine.Retry{By: "ann", Stage: "finish"})
	if got := r.last.History[0].Message; got != "retried by ann" {
		t.Errorf("the history has %q", got)
	}
	r.must(engine.Start{})
	r.wantPosition("D", 2, 1)
}

func TestRetry_StageNotReached_IsRejected(t *testing.T) {
	r := started(t, provision+finally)
	r.fail()
	r.succeed()
	r.succeed()
	r.wantStatus(event.Failed)
	for _, stage := range []string{"finish", "finally", "nowhere"} {
		r.reject(engine.ErrNotPossible, engine.Retry{By: "me", Stage: stage})
		_, err := engine.Preview(r.p, &r.s, engine.Retry{Stage: stage})
		require.ErrorContains(t, err, "stage "+stage+" is not one of those that the operation has reached: start, create")
	}
	r.retryFrom("start")
	r.wantPosition("A", 2, 1)
	r.fail()
	r.wantPosition("Restore", 2, 1)
}

// A failed deprovisioning leaves the steps that it has completed to the next operation of the instance, and to its own retry.
func TestRetry_EarlierStage_RunsStepsThatItHadCompleted(t *testing.T) {
	r := started(t, deprovision)
	r.succeed()
	r.succeed()
	r.fail()
	completed := r.s.CompletedSteps(r.p)
	if diff := cmp.Diff([]string{"First", "Second"}, completed); diff != "" {
		t.Fatalf("completed (-want +got):\n%s", diff)
	}
	r.must(engine.Retry{By: "me", Stage: "second"})
	r.must(engine.Start{Completed: completed})
	r.wantPosition("Second", 2, 1)
	if diff := cmp.Diff([]string{"First"}, r.s.Completed); diff != "" {
		t.Errorf("completed by an earlier operation (-want +got):\n%s", diff)
	}
}

func TestPreview_FailedOperation_ListsItsSteps(t *testing.T) {
	yaml := strings.Replace(provision, "{name: B, worker: beta,", `{name: B, worker: beta, when: 'plan.name == "trial"',`, 1) + finally
	r := started(t, strings.Replace(yaml, `when: 'plan.name != "trial"'`, "when: 'details.alpha.ready == true'", 1))
	r.succeed()
	r.fail() // C
	for r.s.Status == event.InProgress {
		r.succeed()
	}
	for stage, want := range map[string][]string{
		"": {
			"create/A again", `create/B skipped: condition is false: plan.name == "trial"`, "create/C again", "finish/D unknown", "finish/E first",
			"finally/Restore again", "finally/Notify again",
		},
		"start": {
			"start/Starting again", "create/A again", `create/B skipped: condition is false: plan.name == "trial"`, "create/C again", "finish/D unknown",
			"finish/E first", "finally/Restore again", "finally/Notify again",
		},
	} {
		steps, err := engine.Preview(r.p, &r.s, engine.Retry{Stage: stage})
		require.NoError(t, err)
		var got []string
		for _, s := range steps {
			line := s.Stage + "/" + s.Step + " " + string(s.Plan)
			if s.Plan == engine.PlanSkipped {
				line += ": " + s.Reason
			}
			got = append(got, line)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("from stage %q (-want +got):\n%s", stage, diff)
		}
	}
}

// retryFrom lets an operator retry a failed operation from a stage.
func (r *run) retryFrom(stage string) {
	r.t.Helper()
	r.must(engine.Retry{By: "me", Stage: stage})
	r.must(engine.Start{})
}

// The steps before the chosen one stay done; the memory of the earlier attempt is gone, so a step that uses it starts the stage again.
func TestRetry_FromStep_KeepsTheStepsBefore(t *testing.T) {
	r := started(t, provision)
	r.succeed() // A
	r.result(engine.Result{Outcome: event.OutcomeSucceeded, StageMemory: true})
	r.fail() // C
	e := engine.Retry{By: "ann", Stage: "create", Step: "C"}
	loses, err := engine.LosesMemory(r.p, &r.s, e)
	require.NoError(t, err)
	require.True(t, loses)
	r.must(e)
	if last := r.history[len(r.history)-1]; last.Message != "retried by ann from the step C of the stage create" {
		t.Errorf("the history says %q", last.Message)
	}
	r.must(engine.Start{})
	r.wantPosition("C", 2, 1)
	if _, command := engine.Command(r.p, &r.s); !command.StageMemory {
		t.Error("the worker cannot detect that the stage memory is lost")
	}
	r.result(engine.Result{Outcome: event.OutcomeStageLost})
	r.sleep(time.Second)
	r.wantPosition("A", 3, 1)
}

func TestRetry_FromStepOfUnusedMemory_LosesNothing(t *testing.T) {
	r := started(t, provision)
	r.succeed() // A
	r.fail()    // B
	loses, err := engine.LosesMemory(r.p, &r.s, engine.Retry{Stage: "create", Step: "B"})
	require.NoError(t, err)
	require.False(t, loses)
	r.must(engine.Retry{By: "ann", Stage: "create", Step: "B"})
	r.must(engine.Start{})
	r.wantPosition("B", 2, 1)
	if _, command := engine.Command(r.p, &r.s); command.StageMemory {
		t.Error("the worker would search for a memory that was never used")
	}
}

func TestRetry_FromStepOfFinishedStage_RunsTheRest(t *testing.T) {
	r := started(t, provision)
	for range 4 {
		r.succeed() // A, B, C, D
	}
	r.fail() // E
	r.must(engine.Retry{By: "ann", Stage: "create", Step: "B"})
	r.must(engine.Start{})
	for _, step := range []string{"B", "C", "D", "E"} {
		if at := r.s.Position(r.p); at == nil || at.Step != step {
			t.Fatalf("the operation is at %+v, want %s", at, step)
		}
		r.succeed()
	}
	r.wantStatus(event.Succeeded)
}

func TestRetry_FromUnknownStep_IsRejected(t *testing.T) {
	r := started(t, provision)
	r.succeed() // A
	r.fail()    // B
	for _, e := range []engine.Retry{
		{By: "me", Stage: "create", Step: "C"}, {By: "me", Stage: "create", Step: "E"}, {By: "me", Step: "A"}, {By: "me", Stage: "finish", Step: "D"},
	} {
		r.reject(engine.ErrNotPossible, e)
	}
}
