package process_test

import (
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// load loads the base processes of testdata with overlays.
func load(t *testing.T, overlays ...string) process.Set {
	t.Helper()
	set, err := process.Load(os.DirFS("testdata/base"))
	if len(overlays) > 0 {
		files := fstest.MapFS{}
		for i, content := range overlays {
			files[string(rune('a'+i))+".yaml"] = &fstest.MapFile{Data: []byte(content)}
		}
		set, err = process.Load(os.DirFS("testdata/base"), files)
	}
	require.NoError(t, err)
	return set
}

// step returns a step of the provisioning.
func step(t *testing.T, set process.Set, name string) process.Step {
	t.Helper()
	p := set[event.Provision]
	i, j, ok := p.Find(name)
	if !ok {
		t.Fatalf("no step %s", name)
	}
	return p.Stages[i].Steps[j]
}

var ignoreCondition = cmpopts.IgnoreUnexported(process.Step{})

func TestLoad_MissingSettings_GetDefaults(t *testing.T) {
	t.Parallel()
	set := load(t)
	want := process.Step{
		Name: "Three", Worker: "alpha", Execution: time.Minute, OnTimeout: process.Fail, OnFailure: process.Fail,
		Retry: process.Retry{Every: 10 * time.Second, Scope: process.ScopeStage},
	}
	if diff := cmp.Diff(want, step(t, set, "Three"), ignoreCondition); diff != "" {
		t.Errorf("step differs (-want +got):\n%s", diff)
	}
	if got := set[event.Deprovision].Timeout; got != 24*time.Hour {
		t.Errorf("timeout %s, want 24h", got)
	}
}

func TestLoad_BuiltInStep_HasNoLimits(t *testing.T) {
	t.Parallel()
	got := step(t, load(t), "Starting")
	want := process.Step{
		Name: "Starting", Worker: process.WorkerOrchestrator, OnTimeout: process.Fail, OnFailure: process.Fail,
		Retry: process.Retry{Scope: process.ScopeStage},
	}
	if diff := cmp.Diff(want, got, ignoreCondition); diff != "" {
		t.Errorf("step differs (-want +got):\n%s", diff)
	}
	if !got.BuiltIn() {
		t.Error("the step is not built in")
	}
}

func TestWorkers_OmitsOrchestrator(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff([]string{"alpha", "beta", "gamma"}, load(t).Workers()); diff != "" {
		t.Errorf("workers differ (-want +got):\n%s", diff)
	}
}

func TestLoad_DuplicateProcess_IsRejected(t *testing.T) {
	t.Parallel()
	const content = "operation: provision\nstages:\n  - name: s\n    steps: [{name: A, worker: a}]\n"
	_, err := process.Load(fstest.MapFS{
		"provision.yaml": {Data: []byte(content)}, "provision.yml": {Data: []byte(content)},
	})
	expectProblems(t, []string{"provision.yml:1: operation provision is already defined in provision.yaml"}, err)
}

func TestLoad_WaitOfDeprovisioningStep_MayExceedSkipBudget(t *testing.T) {
	t.Parallel()
	set, err := process.Load(fstest.MapFS{"deprovision.yaml": {Data: []byte(`operation: deprovision
stages:
  - name: check
    steps:
      - {name: One, worker: a, retry: {every: 30s, timeout: 5m, scope: step}, wait: {timeout: 90m}, onTimeout: skip}
`)}})
	require.NoError(t, err)
	want := process.Wait{Every: 30 * time.Second, Timeout: 90 * time.Minute}
	if diff := cmp.Diff(want, set[event.Deprovision].Stages[0].Steps[0].Wait); diff != "" {
		t.Errorf("wait (-want +got):\n%s", diff)
	}
}
