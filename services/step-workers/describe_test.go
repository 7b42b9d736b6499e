package stepworkers_test

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

// bases are the base paths of the systems in the landscape; GraphQL and Kubernetes have no routes.
var bases = []struct{ path, system, api string }{
	{"/avs/api/v2/evaluationmetadata", "avs", "rest"},
	{"/edp", "edp", "rest"},
	{"/ias", "ias", "rest"},
	{"/reconciler/v1", "reconciler", "rest"},
	{"/spc", "spc", "rest"},
	{"/artifacts", "artifacts", "rest"},
	{"/lms", "lms", "rest"},
	{"/azure", "azure", "rest"},
	{"/provisioner/graphql", "provisioner", "graphql"},
	{"/director/graphql", "director", "graphql"},
	{"/k8s/control-plane", "control-plane", "kubernetes"},
	{"/k8s/gardener", "gardener", "kubernetes"},
	{"/k8s/runtimes", "runtime", "kubernetes"},
}

// describes reports whether a description contains a call; said is the call in the format of a description.
func describes(d worker.Description, c call) (said string, ok bool) {
	for _, base := range bases {
		rest, ok := strings.CutPrefix(c.path, base.path)
		if !ok {
			continue
		}
		switch base.api {
		case "graphql":
			said = c.graphQL()
		case "kubernetes":
			said = kubernetesCall(c.method, rest)
		default:
			said = strings.TrimSpace(c.method + " " + rest)
		}
		return base.system + " " + said, slices.ContainsFunc(d.Calls, func(described worker.Call) bool {
			return described.System == base.system && matches(described.Operation, said)
		})
	}
	return c.path, false
}

var braces = regexp.MustCompile(`\\\{[a-zA-Z]+\\\}`)

// matches reports whether a call has the route, which contains {names} in braces.
func matches(route, said string) bool {
	return regexp.MustCompile("^" + braces.ReplaceAllString(regexp.QuoteMeta(route), `[^/]+`) + "$").MatchString(said)
}

var kubernetesPath = regexp.MustCompile(`/(?:api|apis/[^/]+)/v[^/]+(?:/namespaces/[^/]+)?/([a-z]+)(/[^/]+)?$`)

func kubernetesCall(method, path string) string {
	found := kubernetesPath.FindStringSubmatch(path)
	if found == nil {
		return method + " " + path
	}
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[method]
	switch {
	case verb != "":
	case found[2] != "":
		verb = "get"
	default:
		verb = "list"
	}
	return verb + " " + found[1]
}

// The descriptions of the steps are compared with their calls in each kind of operation, including failures.
func TestSteps_Calls_AreDescribed(t *testing.T) {
	w := newWorld(t)
	w.seedOverrides("2.21.0")
	checked := map[string]bool{}
	run := func(names []string, op workertest.Operation) workertest.Operation {
		for _, name := range names {
			w.door.fault.Store(&fault{prefix: "/", status: http.StatusServiceUnavailable})
			w.described(name, op)
			w.door.fault.Store(nil)
			w.build(w.url)
			op = w.described(name, op)
			checked[name] = true
		}
		return op
	}
	op := run(provisioning, w.order())
	op = run(updating, w.update(op, "u-1"))
	op = run(upgradingKyma, w.upgrade(op, event.UpgradeKyma, "k-1"))
	op = run(upgradingCluster, w.upgrade(op, event.UpgradeCluster, "c-1"))
	w.customer(op, "services.cloud.sap.com/sap-btp-finalizer")
	run(deprovisioning, deprovision(op))
	if missing := slices.DeleteFunc(slices.Sorted(maps.Keys(w.steps)), func(name string) bool { return checked[name] }); len(missing) > 0 {
		t.Logf("not tested here: %v", missing)
	}
}

// described runs a step to its end and compares it with its description.
func (w *world) described(name string, op workertest.Operation) workertest.Operation {
	w.t.Helper()
	d, ok := worker.Describe(w.steps[name])
	if !ok {
		w.t.Errorf("%s has no description", name)
	}
	if !strings.HasSuffix(d.Summary, ".") || len(d.Summary) < 20 {
		w.t.Errorf("%s: the summary %q is not a sentence", name, d.Summary)
	}
	for range 20 {
		var r workertest.Result
		calls := w.calls(func() { r = w.run(name, op) })
		for _, c := range calls {
			if said, ok := describes(d, c); !ok {
				w.t.Errorf("%s calls %q, which is not described", name, said)
			}
		}
		for member := range r.Details {
			if !slices.Contains(d.Details, member) {
				w.t.Errorf("%s saves %q, which is not described", name, member)
			}
		}
		next := r.Then()
		if r.Outcome == succeeded || r.Outcome == skipped {
			w.remembered(name, d, op, r)
			return next
		}
		if w.door.fault.Load() != nil || r.Outcome == event.OutcomeNotCompleted {
			return next
		}
		if r.Outcome != retry {
			w.t.Fatalf("%s: %s, %+v", name, r.Outcome, r.Error)
		}
		op.Details = next.Details
		op.FirstTried += 2 * time.Minute // BTPOperator_Cleanup gives up after half an hour
		w.advance(takes)
	}
	w.t.Fatalf("%s does not end", name)
	return op
}

// remembered checks the stage memory of a step.
func (w *world) remembered(name string, d worker.Description, op workertest.Operation, r workertest.Result) {
	w.t.Helper()
	before := memory(workertest.Run(w.t, nothing{}, op))
	for key := range memory(r) {
		overrides := strings.HasPrefix(key, "overrides:")
		if before[key] || slices.Contains(d.StageMemory, key) || (overrides && slices.Contains(d.StageMemory, "overrides:*")) {
			continue
		}
		w.t.Errorf("%s remembers %q, which is not described", name, key)
	}
}

// memory returns the keys of the stage memory.
func memory(r workertest.Result) map[string]bool {
	keys := map[string]bool{}
	for key := range r.Remembered {
		keys[key] = true
	}
	for _, o := range r.Overrides {
		keys["overrides:"+o.Component] = true
	}
	return keys
}

// nothing is a step without effects.
type nothing struct{}

func (nothing) Name() string { return "nothing" }

func (nothing) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	return op, 0, nil
}
