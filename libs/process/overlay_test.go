package process_test

import (
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// outline lists the provisioning as "stage: steps".
func outline(set process.Set) []string {
	var lines []string
	for _, stage := range set[event.Provision].Stages {
		line := stage.Name + ":"
		for _, s := range stage.Steps {
			line += " " + s.Name
		}
		lines = append(lines, line)
	}
	return lines
}

func TestOverlay_Changes_OrderSteps(t *testing.T) {
	t.Parallel()
	const header = "operation: provision\nchanges:\n"
	tests := map[string]struct {
		overlay string
		want    []string
	}{
		"add after": {
			"  - add: {after: One, step: {name: Hello, worker: hello}}",
			[]string{"start: Starting", "create: One Hello Two Three", "finish: Four"},
		},
		"add before, with its stage named": {
			"  - add: {stage: finish, before: Four, step: {name: Hello, worker: hello}}",
			[]string{"start: Starting", "create: One Two Three", "finish: Hello Four"},
		},
		"add to the end of a stage": {
			"  - add: {stage: create, step: {name: Hello, worker: hello}}",
			[]string{"start: Starting", "create: One Two Three Hello", "finish: Four"},
		},
		"add a stage at the end": {
			"  - addStage: {name: hello, steps: [{name: Hello, worker: hello}]}",
			[]string{"start: Starting", "create: One Two Three", "finish: Four", "hello: Hello"},
		},
		"add a stage before another": {
			"  - addStage: {name: hello, before: finish, steps: [{name: Hello, worker: hello}]}",
			[]string{"start: Starting", "create: One Two Three", "hello: Hello", "finish: Four"},
		},
		"add a stage after another": {
			"  - addStage: {name: hello, after: start, steps: [{name: Hello, worker: hello}]}",
			[]string{"start: Starting", "hello: Hello", "create: One Two Three", "finish: Four"},
		},
		"move within a stage": {
			"  - move: {step: One, after: Three}",
			[]string{"start: Starting", "create: Two Three One", "finish: Four"},
		},
		"move the last step of a stage": {
			"  - move: {step: Four, before: Two}",
			[]string{"start: Starting", "create: One Four Two Three"},
		},
		"disable": {
			"  - disable: Two",
			[]string{"start: Starting", "create: One Three", "finish: Four"},
		},
		"a later change sees an earlier one": {
			"  - add: {after: One, step: {name: Hello, worker: hello}}\n  - move: {step: Two, before: Hello}",
			[]string{"start: Starting", "create: One Two Hello Three", "finish: Four"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, outline(load(t, header+tc.overlay+"\n"))); diff != "" {
				t.Errorf("process differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOverlay_Retime_KeepsOtherSettings(t *testing.T) {
	t.Parallel()
	set := load(t, `operation: provision
changes:
  - retime: {step: One, when: plan.name == "aws", retry: {timeout: 20m, scope: step}, wait: {timeout: 40m}, onTimeout: skip, systems: [ias]}
  - retime: {timeout: 30h}
`)
	want := process.Step{
		Name: "One", Worker: "alpha", When: `plan.name == "aws"`, Execution: time.Minute,
		Retry:     process.Retry{Every: 5 * time.Second, Timeout: 20 * time.Minute, Scope: process.ScopeStep},
		Wait:      process.Wait{Every: 5 * time.Second, Timeout: 40 * time.Minute},
		OnTimeout: process.Skip, OnFailure: process.Fail, Systems: []string{"ias"},
	}
	if diff := cmp.Diff(want, step(t, set, "One"), ignoreCondition); diff != "" {
		t.Errorf("step differs (-want +got):\n%s", diff)
	}
	if got := set[event.Provision].Timeout; got != 30*time.Hour {
		t.Errorf("timeout %s, want 30h", got)
	}
}

func TestOverlay_RetimeOfGrowth_KeepsOtherSettings(t *testing.T) {
	t.Parallel()
	const grows = "operation: provision\nchanges:\n  - retime: {step: One, retry: {max: 1m, factor: 2, jitter: 0.5}}\n"
	for name, tc := range map[string]struct {
		retime string
		want   process.Retry
	}{
		"a longer first interval raises the longest one": {
			"{every: 3m}", process.Retry{Every: 3 * time.Minute, Max: 3 * time.Minute, Factor: 2, Jitter: 0.5},
		},
		"a shorter first interval keeps the longest one": {
			"{every: 1s}", process.Retry{Every: time.Second, Max: time.Minute, Factor: 2, Jitter: 0.5},
		},
		"the factor 1 stops the growth": {
			"{factor: 1, jitter: 0}", process.Retry{Every: 5 * time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := process.Load(os.DirFS("testdata/base"), fstest.MapFS{
				"a.yaml": {Data: []byte(grows)},
				"b.yaml": {Data: []byte("operation: provision\nchanges:\n  - retime: {step: One, retry: " + tc.retime + "}\n")},
			})
			require.NoError(t, err)
			tc.want.Timeout, tc.want.Scope = 10*time.Minute, process.ScopeStage
			if diff := cmp.Diff(tc.want, step(t, set, "One").Retry); diff != "" {
				t.Errorf("retry differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOverlay_SeveralFiles_ApplyInOrder(t *testing.T) {
	t.Parallel()
	retime := func(execution string) []byte {
		return []byte("operation: provision\nchanges:\n  - retime: {step: One, execution: " + execution + "}\n")
	}
	first := fstest.MapFS{"b.yaml": {Data: retime("2m")}, "a.yaml": {Data: retime("3m")}}
	second := fstest.MapFS{"a.yaml": {Data: retime("4m")}}
	for _, tc := range []struct {
		name     string
		overlays []string
		want     time.Duration
	}{
		{"by file name in a folder", []string{"first"}, 2 * time.Minute},
		{"by folder", []string{"first", "second"}, 4 * time.Minute},
		{"by folder, in reverse order", []string{"second", "first"}, 2 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			folders := map[string]fstest.MapFS{"first": first, "second": second}
			var err error
			var set process.Set
			switch len(tc.overlays) {
			case 1:
				set, err = process.Load(os.DirFS("testdata/base"), folders[tc.overlays[0]])
			default:
				set, err = process.Load(os.DirFS("testdata/base"), folders[tc.overlays[0]], folders[tc.overlays[1]])
			}
			require.NoError(t, err)
			if got := step(t, set, "One").Execution; got != tc.want {
				t.Errorf("execution %s, want %s", got, tc.want)
			}
		})
	}
}

func TestOverlay_OneOperation_KeepsOthers(t *testing.T) {
	t.Parallel()
	before, after := load(t), load(t, "operation: provision\nchanges:\n  - disable: Two\n")
	if before[event.Provision].Hash() == after[event.Provision].Hash() {
		t.Error("the provisioning has not changed")
	}
	if before[event.Deprovision].Hash() != after[event.Deprovision].Hash() {
		t.Error("the deprovisioning has changed")
	}
}

func TestOverlay_SeveralDocuments_ChangeSeveralOperations(t *testing.T) {
	t.Parallel()
	set := load(t, `operation: provision
changes:
  - disable: Two
---
operation: deprovision
changes:
  - retime: {timeout: 30h}
`)
	if diff := cmp.Diff([]string{"start: Starting", "create: One Three", "finish: Four"}, outline(set)); diff != "" {
		t.Errorf("provisioning differs (-want +got):\n%s", diff)
	}
	if got := set[event.Deprovision].Timeout; got != 30*time.Hour {
		t.Errorf("the deprovisioning's timeout is %s, want 30h", got)
	}
}
