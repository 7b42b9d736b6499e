package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// took returns the durations of the steps that the last transition ended.
func (r *run) took() map[string]time.Duration {
	took := map[string]time.Duration{}
	for _, h := range r.last.History {
		if h.Kind == engine.KindStep {
			took[r.p.Stages[h.Stage].Steps[h.Step].Name+" "+string(h.Outcome)] = h.Took
		}
	}
	return took
}

func (r *run) equal(what string, got, want any) {
	r.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestDurations_StepsAndStages_IncludeAllAttempts(t *testing.T) {
	r := started(t, provision)
	r.equal("stages", r.last.Stages, []engine.StageEnd{{Stage: 0}}) // Starting runs in the orchestrator
	r.now = r.now.Add(2 * time.Second)
	r.succeed() // A
	r.equal("A", r.took(), map[string]time.Duration{"A succeeded": 2 * time.Second})
	r.now = r.now.Add(time.Second)
	r.retry(10 * time.Second) // B, three seconds after the start
	r.equal("B", r.took(), map[string]time.Duration{"B retry": time.Second})
	r.sleep(10 * time.Second) // repeats the stage from A
	r.succeed()
	r.equal("A again", r.took(), map[string]time.Duration{"A succeeded": 0})
	r.now = r.now.Add(5 * time.Second)
	r.succeed()
	r.equal("B", r.took(), map[string]time.Duration{"B succeeded": 16 * time.Second})
	r.equal("no stage has ended", len(r.last.Stages), 0)
	r.now = r.now.Add(time.Second)
	r.succeed() // C
	r.equal("stages", r.last.Stages, []engine.StageEnd{{Stage: 1, Took: 19 * time.Second}})
	r.fail() // D is skipped
	r.now = r.now.Add(time.Second)
	r.succeed() // E
	r.equal("stages", r.last.Stages, []engine.StageEnd{{Stage: 2, Took: time.Second}})
}

func TestDurations_SkippedStep_IsZero(t *testing.T) {
	r := newRun(t, load(t, provision))
	r.s.Operation.Plan.Name = "trial"
	r.must(engine.Start{})
	for range 2 {
		r.succeed()
	}
	r.now = r.now.Add(time.Minute)
	r.succeed()
	r.equal("D", r.took(), map[string]time.Duration{"C succeeded": time.Minute, "D skipped": 0})
}

// The clock of the orchestrator that tried the step first is ahead.
func TestDurations_ClockBehind_AreNotNegative(t *testing.T) {
	r := started(t, provision)
	r.now = r.now.Add(-time.Minute)
	r.succeed()
	for _, h := range r.last.History {
		if h.Took < 0 {
			t.Errorf("duration is %s, want none below zero", h.Took)
		}
	}
}

// An earlier release did not record the start of a stage. Such a stage has no duration.
func TestDurations_StageWithoutStart_IsNotReported(t *testing.T) {
	r := started(t, provision)
	r.s.StageStartedAt = time.Time{}
	stage := r.s.Stage
	for r.s.Stage == stage {
		r.succeed()
		if r.s.Stage == stage && len(r.last.Stages) > 0 {
			t.Fatalf("stages ended before their last step: %+v", r.last.Stages)
		}
	}
	if len(r.last.Stages) != 0 {
		t.Errorf("stages are %+v, want none", r.last.Stages)
	}
	if r.s.StageStartedAt.IsZero() {
		t.Error("the next stage has no start")
	}
}
