package steps_test

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/test/internal/rehearsal"
	"github.com/kyma-project/keb/test/internal/stepsdoc"
)

//go:generate go run ../internal/stepsdoc/cmd ../../docs/steps.md

func TestThePageOfStepsIsUpToDate(t *testing.T) {
	t.Parallel()
	want, err := stepsdoc.Generate()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/steps.md")
	if err != nil {
		t.Fatalf("%v: run go generate ./steps", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("docs/steps.md is out of date, run go generate ./steps (-file +generated):\n%s", cmp.Diff(string(got), string(want)))
	}
}

// seen is what a step was seen to do.
type seen struct {
	calls           map[worker.Call]bool
	details, memory map[string]bool
}

// TestStepsDoWhatTheyDescribe holds the description of each step against what it does in all scenarios, with and without the
// failures that make it take another path.
func TestStepsDoWhatTheyDescribe(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	did := map[string]*seen{}
	steps := map[string]worker.Step{}
	look := func(w *rehearsal.World, run *rehearsal.Run) {
		mu.Lock()
		defer mu.Unlock()
		for _, x := range run.Executions {
			step := w.Step(x.Worker, x.Command.Step)
			if step == nil {
				continue
			}
			key := x.Worker + "/" + x.Command.Step
			if did[key] == nil {
				did[key] = &seen{calls: map[worker.Call]bool{}, details: map[string]bool{}, memory: map[string]bool{}}
				steps[key] = step
			}
			for _, c := range x.Calls {
				did[key].calls[c] = true
			}
			for _, name := range x.Details {
				did[key].details[name] = true
			}
			for _, name := range x.StageMemory {
				did[key].memory[name] = true
			}
		}
	}
	t.Run("scenarios", func(t *testing.T) {
		for _, s := range append(rehearsal.Scenarios(), rehearsal.Variants()...) {
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				w, run := rehearsal.Play(t, s, nil)
				look(w, run)
				// Each first result is lost, so that the steps find what they have made.
				lost := map[string]bool{}
				w, run = rehearsal.Play(t, s, func(_ string, c event.StepExecute) (*rehearsal.Fault, bool) {
					first := !lost[c.Step]
					lost[c.Step] = true
					return nil, first
				})
				look(w, run)
			})
		}
	})
	for _, key := range slices.Sorted(maps.Keys(did)) {
		d, ok := worker.Describe(steps[key])
		if !ok {
			t.Errorf("%s does not describe itself", key)
			continue
		}
		if d.Summary == "" {
			t.Errorf("%s: no summary", key)
		}
		for c := range did[key].calls {
			if !slices.ContainsFunc(d.Calls, func(described worker.Call) bool { return rehearsal.Matches(described, c) }) {
				t.Errorf("%s calls %s %q and does not say so", key, c.System, c.Operation)
			}
		}
		for _, described := range d.Calls {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(did[key].calls)), func(c worker.Call) bool { return rehearsal.Matches(described, c) }) {
				t.Errorf("%s says that it calls %s %q, and was never seen to", key, described.System, described.Operation)
			}
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(d.Details)), slices.Sorted(maps.Keys(did[key].details))); diff != "" {
			t.Errorf("%s saves (-described +seen):\n%s", key, diff)
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(d.StageMemory)), slices.Sorted(maps.Keys(did[key].memory))); diff != "" {
			t.Errorf("%s puts into the stage memory (-described +seen):\n%s", key, diff)
		}
	}
}
