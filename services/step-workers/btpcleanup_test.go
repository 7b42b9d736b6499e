package stepworkers_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

const btpCleanup = "BTPOperator_Cleanup"

// btpLeft is how many service instances and bindings the runtimes hold.
func (w *world) btpLeft() (instances, bindings int64) {
	w.t.Helper()
	held := w.objects()
	return held["runtimes/ServiceInstance"], held["runtimes/ServiceBinding"]
}

// ofRuntime is the path of something in the API of the runtime of op.
func ofRuntime(t *testing.T, op workertest.Operation, path string) string {
	t.Helper()
	return "/k8s/runtimes/" + saved[provisioner.Details](t, op, provisioner.Name).RuntimeID + path
}

const services = "/apis/services.cloud.sap.com/v1/"

func TestSuspensionOfATrialRemovesInstancesAndBindingsAndNothingElse(t *testing.T) {
	w := newWorld(t)
	op := deprovision(w.all([]string{inject}, w.reached()))
	op.Plan.Name, op.Temporary = "trial", true
	w.customerHas(op, "db")
	w.customerHas(op, "queue")
	before := w.objects()
	w.all([]string{btpCleanup}, op)
	if instances, bindings := w.btpLeft(); instances+bindings != 0 {
		t.Errorf("%d instances and %d bindings are left", instances, bindings)
	}
	after := w.objects()
	for _, kind := range []string{"runtimes/Namespace", "runtimes/Secret"} {
		if before[kind] != after[kind] || after[kind] == 0 {
			t.Errorf("%s: there were %d, and are %d", kind, before[kind], after[kind])
		}
	}
}

// The job that clears accounts away must not wait for an operator that cannot reach the account any more.
func TestAccountCleanupTakesTheKindsThatTheRuntimeHas(t *testing.T) {
	for name, test := range map[string]struct {
		missing             []string
		instances, bindings int64
	}{
		"both":     {nil, 0, 0},
		"bindings": {[]string{"serviceinstances"}, 1, 0},
		"instances": {
			[]string{"servicebindings"}, 0, 1,
		},
		"none": {[]string{"serviceinstances", "servicebindings"}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			op := deprovision(w.reached())
			op.UserAgent = "accountcleanup-job"
			w.customer(op, "services.cloud.sap.com/sap-btp-finalizer")
			next := w.door.next
			w.door.next = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				for _, resource := range test.missing {
					if strings.HasSuffix(r.URL.Path, services+resource) {
						http.Error(rw, "404 page not found", http.StatusNotFound)
						return
					}
				}
				next.ServeHTTP(rw, r)
			})
			r := w.run(btpCleanup, op)
			w.door.next = next
			if r.Outcome != succeeded {
				t.Errorf("%s, %q, %+v", r.Outcome, r.Message, r.Error)
			}
			if instances, bindings := w.btpLeft(); instances != test.instances || bindings != test.bindings {
				t.Errorf("%d instances and %d bindings are left, want %d and %d", instances, bindings, test.instances, test.bindings)
			}
		})
	}
}

func TestCleanupOfNoRuntimeIsSkipped(t *testing.T) {
	w := newWorld(t)
	never := deprovision(w.order())
	// A runtime whose creation has only begun has no kubeconfig.
	begun := w.order()
	for _, name := range []string{"Resolve_Target_Secret", "Create_Runtime_Without_Kyma"} {
		_, begun = w.finish(name, begun)
	}
	own := never
	own.Plan.Name = "own_cluster"
	for name, op := range map[string]workertest.Operation{"never made": never, "being made": deprovision(begun), "own cluster without kubeconfig": own} {
		if r := w.run(btpCleanup, op); r.Outcome != skipped || r.Message == "" {
			t.Errorf("%s: %s, %q, %+v", name, r.Outcome, r.Message, r.Error)
		}
	}
}

func TestRefusalsOfTheRuntimeAreTriedAgainWhileTheOthersGo(t *testing.T) {
	w := newWorld(t)
	op := deprovision(w.reached())
	w.customerHas(op, "db")
	w.customerHas(op, "queue")
	refuse := func(path string, status int) workertest.Result {
		t.Helper()
		w.door.fault.Store(&fault{
			prefix: ofRuntime(t, op, services+path), status: status,
			body: `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"denied: $BODY"}`,
		})
		defer w.door.fault.Store(nil)
		return w.run(btpCleanup, op)
	}
	for what, test := range map[string]struct {
		path   string
		status int
	}{
		"the list":         {"servicebindings", http.StatusForbidden},
		"one deletion":     {"namespaces/default/servicebindings/db", http.StatusForbidden},
		"it for a moment":  {"namespaces/default/servicebindings/db", http.StatusInternalServerError},
		"it by validation": {"namespaces/default/servicebindings/db", http.StatusUnprocessableEntity},
	} {
		if r := refuse(test.path, test.status); r.Outcome != retry || r.Error == nil || r.Error.Component != "btp" || r.RetryAfter <= 0 {
			t.Errorf("refusing %s: %s, %+v", what, r.Outcome, r.Error)
		}
	}
	// The other binding went, and instances wait for all bindings.
	if instances, bindings := w.btpLeft(); instances != 2 || bindings != 1 {
		t.Errorf("%d instances and %d bindings are left, want 2 and 1", instances, bindings)
	}
	if r := refuse("namespaces/default/serviceinstances/queue", http.StatusForbidden); r.Outcome != retry {
		t.Errorf("refusing an instance: %s, %+v", r.Outcome, r.Error)
	}
	if instances, bindings := w.btpLeft(); instances != 1 || bindings != 0 {
		t.Errorf("%d instances and %d bindings are left, want 1 and 0", instances, bindings)
	}
	if r := w.run(btpCleanup, op); r.Outcome != event.OutcomeSucceeded {
		t.Errorf("at the end: %s, %+v", r.Outcome, r.Error)
	}
	w.noSecrets()
}
