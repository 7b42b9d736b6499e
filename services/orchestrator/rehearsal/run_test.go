package rehearsal_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/processes"
	"github.com/kyma-project/keb/services/orchestrator/rehearsal"
)

// load returns the built-in processes, changed by an overlay unless it is empty.
func load(t *testing.T, overlay string) process.Set {
	t.Helper()
	if overlay == "" {
		set, err := process.Load(processes.FS)
		require.NoError(t, err)
		return set
	}
	set, err := process.Load(processes.FS, fstest.MapFS{"test.yaml": {Data: []byte(overlay)}})
	require.NoError(t, err)
	return set
}

func run(t *testing.T, p *process.Process, plan string, script rehearsal.Script) *rehearsal.Trace {
	t.Helper()
	trace, err := rehearsal.Run(p, event.Operation{InstanceID: "i", Plan: event.Plan{Name: plan}}, script)
	require.NoError(t, err)
	return trace
}

// An overlay author's first test: the step runs where it should, and its failure does not end the provisioning.
func TestRun_OverlayStepFails_ProvisioningGoesOn(t *testing.T) {
	t.Parallel()
	set := load(t, `
operation: provision
changes:
  - add: {after: EDP_Registration, step: {name: Hello_World, worker: hello-world, retry: {every: 10s, timeout: 1m}, onTimeout: skip, onFailure: skip}}
`)
	for name, tt := range map[string]struct {
		answers []rehearsal.Answer
		outcome event.Outcome
		tries   int
	}{
		"succeeds":           {nil, event.OutcomeSucceeded, 1},
		"fails":              {[]rehearsal.Answer{rehearsal.Fail("no greeting")}, event.OutcomeNotCompleted, 1},
		"is down for 20s":    {[]rehearsal.Answer{rehearsal.Retry(0, "down"), rehearsal.Retry(0, "down"), rehearsal.Succeed()}, event.OutcomeSucceeded, 3},
		"is down for long":   {[]rehearsal.Answer{rehearsal.Retry(0, "down")}, event.OutcomeNotCompleted, 7},
		"has nothing to do":  {[]rehearsal.Answer{rehearsal.Skip("greeted before")}, event.OutcomeSkipped, 1},
		"names its own time": {[]rehearsal.Answer{rehearsal.Retry(59*time.Second, "busy"), rehearsal.Succeed()}, event.OutcomeSucceeded, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script := rehearsal.Script{}
			if tt.answers != nil {
				script["Hello_World"] = tt.answers
			}
			trace := run(t, set[event.Provision], "azure", script)
			if trace.State != event.Succeeded {
				t.Fatalf("the operation ends as %s:\n%s", trace.State, trace)
			}
			var outcomes []event.Outcome
			for _, l := range trace.Lines {
				if l.Step == "Hello_World" {
					outcomes = append(outcomes, l.Outcome)
				}
			}
			if got := outcomes[len(outcomes)-1]; got != tt.outcome {
				t.Errorf("the step ends as %s, want %s:\n%s", got, tt.outcome, trace)
			}
			if got := trace.Executions("Hello_World"); got != tt.tries {
				t.Errorf("%d executions, want %d:\n%s", got, tt.tries, trace)
			}
			steps := strings.Join(trace.Steps(), " ")
			if tt.outcome == event.OutcomeSucceeded && !strings.Contains(steps, "EDP_Registration Hello_World") {
				t.Errorf("Hello_World does not follow EDP_Registration: %s", steps)
			}
		})
	}
}

// The provisioning of the original, with its hours of waiting, in the order of its table.
func TestRun_Provision_StepsInTheOrderOfTheProcess(t *testing.T) {
	t.Parallel()
	p := load(t, "")[event.Provision]
	slow := rehearsal.Script{}
	for _, name := range []string{"Check_Runtime", "Check_Cluster_Configuration"} {
		if _, _, ok := p.Find(name); ok {
			for range 30 {
				slow[name] = append(slow[name], rehearsal.Poll(time.Minute))
			}
			slow[name] = append(slow[name], rehearsal.Succeed())
		}
	}
	trace := run(t, p, "azure", slow)
	if trace.State != event.Succeeded || trace.Took < 30*time.Minute {
		t.Fatalf("the operation ends as %s after %s:\n%s", trace.State, trace.Took, trace)
	}
	position := map[string]int{}
	n := 0
	for _, stage := range p.Stages {
		for _, step := range stage.Steps {
			position[step.Name] = n
			n++
		}
	}
	last := -1
	for _, name := range trace.Steps() {
		if position[name] < last {
			t.Errorf("%s runs too late:\n%s", name, trace)
		}
		last = position[name]
	}
	if ran := len(trace.Steps()); ran < n/2 {
		t.Errorf("only %d of %d steps ran:\n%s", ran, n, trace)
	}
}

// Operations that met the same outage go on at different times, and within the budget of the step.
func TestRun_Outage_OperationsReturnSpread(t *testing.T) {
	t.Parallel()
	p := load(t, "")[event.Provision]
	const step = "AVS_Create_Internal_Eval_Step" // every 30 s, at most 1 m, for 10 m
	script := rehearsal.Script{step: {
		rehearsal.Retry(0, "down"), rehearsal.Retry(0, "down"), rehearsal.Retry(0, "down"), rehearsal.Retry(0, "down"), rehearsal.Succeed(),
	}}
	seconds := map[time.Duration]bool{}
	const operations = 100
	for i := range operations {
		op := event.Operation{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), InstanceID: "i", Plan: event.Plan{Name: "azure"}}
		trace, err := rehearsal.Run(p, op, script)
		require.NoError(t, err)
		if want := 30*time.Second + 3*time.Minute; trace.State != event.Succeeded || trace.Took < want/2 || trace.Took > want*3/2 {
			t.Fatalf("the operation ends as %s after %s, want success after %s, give or take a half:\n%s", trace.State, trace.Took, want, trace)
		}
		seconds[trace.Took.Truncate(time.Second)] = true
	}
	if len(seconds) < operations/4 {
		t.Errorf("%d operations return in only %d different seconds", operations, len(seconds))
	}
}

// Skipped steps of a deprovisioning are bounded by their budgets, and the removal of the runtime is not skipped.
func TestRun_Deprovision_AllSystemsDown(t *testing.T) {
	t.Parallel()
	p := load(t, "")[event.Deprovision]
	script := rehearsal.Script{}
	var want []string
	for _, stage := range p.Stages {
		for _, step := range stage.Steps {
			if !step.BuiltIn() && step.OnTimeout == process.Skip {
				script[step.Name] = []rehearsal.Answer{rehearsal.Retry(0, "down")}
			}
		}
	}
	trace := run(t, p, "azure", script)
	for _, stage := range p.Stages {
		for _, step := range stage.Steps {
			if script[step.Name] != nil && trace.Executions(step.Name) > 0 {
				want = append(want, step.Name)
			}
		}
	}
	if trace.State != event.Succeeded {
		t.Errorf("the operation ends as %s:\n%s", trace.State, trace)
	}
	if diff := cmp.Diff(want, trace.NotCompleted); diff != "" {
		t.Errorf("steps not completed (-want +got):\n%s", diff)
	}
	if limit := time.Duration(len(want)) * process.MaxSkipBudget; trace.Took > limit {
		t.Errorf("it took %s, want at most %s", trace.Took, limit)
	}
}

func TestRun_Refuses(t *testing.T) {
	t.Parallel()
	p := load(t, "")[event.Provision]
	for name, tt := range map[string]struct {
		p      *process.Process
		script rehearsal.Script
		want   string
	}{
		"unknown step": {p, rehearsal.Script{"EDP_Registratoin": {rehearsal.Succeed()}}, `no step "EDP_Registratoin"`},
		"no answers":   {p, rehearsal.Script{"EDP_Registration": {}}, "has no answer"},
		"no process":   {nil, nil, "there is no process"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := rehearsal.Run(tt.p, event.Operation{}, tt.script)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func ExampleRun() {
	set, err := process.Load(processes.FS)
	if err != nil {
		fmt.Println(err)
		return
	}
	trace, err := rehearsal.Run(set[event.Provision], event.Operation{Plan: event.Plan{Name: "azure"}}, rehearsal.Script{
		"Create_Runtime_Without_Kyma": {rehearsal.Fail("the quota is used up")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(trace.State, trace.Executions("Create_Runtime_Without_Kyma"), trace.Error.Message)
	// Output: failed 1 the quota is used up
}
