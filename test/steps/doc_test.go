package steps_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

//go:generate go test -count=1 -run ^TestStepsPage_Content_IsUpToDate$ . -update

func TestStepsPage_Content_IsUpToDate(t *testing.T) {
	t.Parallel()
	page, err := stepsPage()
	require.NoError(t, err)
	testkit.Golden(t, "../../docs/steps.md", page)
}

// record contains the observed calls of the steps. It is safe for concurrent use.
type record struct {
	mu    sync.Mutex
	steps map[string]*deeds
	runs  int
}

type deeds struct {
	step worker.Step
	// described are the calls that the step describes in any world: some describe a look-up only where its system is configured.
	described, calls map[worker.Call]bool
	details, memory  map[string]bool
}

func (r *record) look(w *World, run *Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.steps == nil {
		r.steps = map[string]*deeds{}
	}
	r.runs++
	for _, x := range run.Executions {
		step := w.Step(x.Worker, x.Command.Step)
		if step == nil {
			continue
		}
		key := x.Worker + "/" + x.Command.Step
		did := r.steps[key]
		if did == nil {
			did = &deeds{
				step: step, described: map[worker.Call]bool{}, calls: map[worker.Call]bool{}, details: map[string]bool{}, memory: map[string]bool{},
			}
			r.steps[key] = did
		}
		d, _ := worker.Describe(step)
		for _, c := range d.Calls {
			did.described[c] = true
		}
		for _, c := range x.Calls {
			did.calls[c] = true
		}
		for _, name := range x.Details {
			did.details[name] = true
		}
		for _, name := range x.StageMemory {
			did.memory[name] = true
		}
	}
}

// takeOtherPaths runs the variants.
func takeOtherPaths(t *testing.T, seen *record) {
	for _, s := range Variants() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			w, run := Play(t, s, nil)
			if status := run.Status(); status.State != event.Succeeded || !slices.Equal(status.NotCompleted, s.NotCompleted) {
				t.Errorf("the operation is %s, not completed %v: %+v", status.State, status.NotCompleted, status.Error)
			}
			seen.look(w, run)
			// Each first result is lost, so that the steps find their own objects.
			lost := map[string]bool{}
			w, run = Play(t, s, func(_ string, c event.StepExecute) (*Fault, bool) {
				first := !lost[c.Step]
				lost[c.Step] = true
				return nil, first
			})
			seen.look(w, run)
		})
	}
}

// unseen are described calls that no scenario causes; tests of the worker's module cause some of them.
var unseen = map[string][]string{
	// The runtime has a cluster id before the broker assigns one.
	"btp/BTPOperatorOverrides": {"get configmaps", "create namespaces", "create configmaps"},
	// An own cluster, see sequences_test.go.
	"btp/BTPOperator_Cleanup": {"get secrets", "delete secrets"},
	// Another client created an immutable Secret.
	"btp/Inject_BTP_Operator_Credentials": {"delete secrets"},
	// The operation began before templates existed, and the instance has changed since its resource was created.
	"lifecycle-manager/Apply_Kyma":      {"list configmaps", "patch kymas"},
	"lifecycle-manager/Sync_Kubeconfig": {"list configmaps", "patch secrets"},
	// The version is that of a pull request, or a release with known components; the instance is older than the saved version.
	"kyma/Provision_Initialization":  {"GET /kyma-development-artifacts/{version}/kyma-components.yaml"},
	"kyma/Upgrade_Init_Kyma_Version": {"GET /kyma-prow-artifacts/{version}/kyma-components.yaml", "GET /kyma-development-artifacts/{version}/kyma-components.yaml"},
	"kyma/Update_Init_Kyma_Version":  {"GET /kyma-prow-artifacts/{version}/kyma-components.yaml", "GET /kyma-development-artifacts/{version}/kyma-components.yaml", "get configmaps"},
	// An upgrade that was saved but never reached the Runtime Provisioner.
	"provisioner/Check_Runtime":         {"runtimeStatus", "upgradeShoot"},
	"provisioner/Check_Runtime_Removal": {"get shoots", "runtimes", "runtimeStatus", "deprovisionRuntime"},
	// The Reconciler has the runtime in a deregistration, or the runtime never becomes ready.
	"reconciler/Apply_Cluster_Configuration":    {"DELETE /clusters/{runtimeID}"},
	"reconciler/Apply_Reconciler_Configuration": {"DELETE /clusters/{runtimeID}"},
	"reconciler/Check_Cluster_Configuration":    {"DELETE /clusters/{runtimeID}"},
	"reconciler/Create_Cluster_Configuration":   {"DELETE /clusters/{runtimeID}"},
}

// compare compares the description of each step with its observed calls.
func (r *record) compare(t *testing.T) {
	t.Logf("%d operations ran %d steps", r.runs, len(r.steps))
	for _, key := range slices.Sorted(maps.Keys(r.steps)) {
		did := r.steps[key]
		d, ok := worker.Describe(did.step)
		if !ok {
			t.Errorf("%s does not describe itself", key)
			continue
		}
		if !strings.HasSuffix(d.Summary, ".") || len(d.Summary) < 20 {
			t.Errorf("%s: the summary %q is not a sentence", key, d.Summary)
		}
		described := slices.Collect(maps.Keys(did.described))
		for c := range did.calls {
			if !slices.ContainsFunc(described, func(described worker.Call) bool { return Matches(described, c) }) {
				t.Errorf("%s calls %s %q, which is not described", key, c.System, c.Operation)
			}
		}
		calls := slices.Collect(maps.Keys(did.calls))
		for _, d := range described {
			was := slices.ContainsFunc(calls, func(c worker.Call) bool { return Matches(d, c) })
			if excused := slices.Contains(unseen[key], d.Operation); was == excused {
				t.Errorf("%s describes the call %s %q: seen %t, on the list of unseen ones %t", key, d.System, d.Operation, was, excused)
			}
		}
		for name := range did.details {
			if !slices.Contains(d.Details, name) {
				t.Errorf("%s saves %s, which is not described", key, name)
			}
		}
		for name := range did.memory {
			wild := slices.ContainsFunc(d.StageMemory, func(described string) bool {
				prefix, any := strings.CutSuffix(described, "*")
				return any && strings.HasPrefix(name, prefix)
			})
			if !wild && !slices.Contains(d.StageMemory, name) {
				t.Errorf("%s puts %s into the stage memory, which is not described", key, name)
			}
		}
	}
}
