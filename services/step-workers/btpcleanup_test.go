package stepworkers_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

const btpCleanup = "BTPOperator_Cleanup"

// btpLeft returns the number of service instances and bindings in all runtimes.
func (w *world) btpLeft() (instances, bindings int64) {
	w.t.Helper()
	held := w.objects()
	return held["runtimes/ServiceInstance"], held["runtimes/ServiceBinding"]
}

// ofRuntime returns the path of an object in the API of op's runtime.
func ofRuntime(t *testing.T, op workertest.Operation, path string) string {
	t.Helper()
	return "/k8s/runtimes/" + saved[provisioner.Details](t, op, provisioner.Name).RuntimeID + path
}

const services = "/apis/services.cloud.sap.com/v1/"

func TestCleanup_TrialSuspension_RemovesOnlyBTPObjects(t *testing.T) {
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
			t.Errorf("%s: %d before, %d after", kind, before[kind], after[kind])
		}
	}
}

// The clean-up of deleted accounts must not wait for an operator that cannot reach the account.
func TestAccountCleanup_MissingKinds_AreIgnored(t *testing.T) {
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

func TestCleanup_NoRuntime_IsSkipped(t *testing.T) {
	w := newWorld(t)
	never := deprovision(w.order())
	// A runtime whose creation has just begun has no kubeconfig.
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

func TestCleanup_RejectedDeletion_IsRetried(t *testing.T) {
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
	// The other binding was deleted; instances wait for all bindings.
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

// stuck returns the deprovisioning of a runtime with two service instances and a binding that the BTP operator does not release.
func (w *world) stuck() workertest.Operation {
	w.t.Helper()
	op := deprovision(w.reached())
	const finalizer = "services.cloud.sap.com/sap-btp-finalizer"
	w.customerHas(op, "db", finalizer)
	w.customerHas(op, "queue", finalizer)
	require.NoError(w.t, w.runtime(op).Patch(w.t.Context(), kube.ServiceBindings, "default", "queue", []byte(`{"metadata":{"finalizers":null}}`)))
	if r := w.run(btpCleanup, op); r.Outcome != retry || r.Error != nil || r.Message != "1 servicebindings are being deleted" {
		w.t.Fatalf("at first: %s, %q, %+v", r.Outcome, r.Message, r.Error)
	}
	return op
}

func TestBTPCleanup_OperatorDoesNotAnswer_ReportsWhatWasLeft(t *testing.T) {
	w := newWorld(t)
	op := w.stuck()
	op.FirstTried = 30*time.Minute - time.Second
	if r := w.run(btpCleanup, op); r.Outcome != retry || r.Error != nil {
		t.Fatalf("before 30 minutes: %s, %+v", r.Outcome, r.Error)
	}
	op.FirstTried = 30 * time.Minute
	counted := w.run(btpCleanup, op)
	if instances, bindings := w.btpLeft(); counted.Outcome != retry || instances != 2 || bindings != 1 {
		t.Fatalf("after 30 minutes: %s, %d instances and %d bindings are left, want 2 and 1 until they are counted", counted.Outcome, instances, bindings)
	}
	op = counted.Then()
	op.FirstTried = 30 * time.Minute
	const want = "2 service instances and 1 service binding were left after 30m0s; their finalizers were removed"
	// The second time, the result of the first execution is lost with the worker's process.
	for range 2 {
		r := w.run(btpCleanup, op)
		if r.Outcome != event.OutcomeNotCompleted || r.Error == nil || r.Error.Message != want {
			t.Errorf("%s, %+v, want not completed: %s", r.Outcome, r.Error, want)
		}
		if instances, bindings := w.btpLeft(); instances+bindings != 0 {
			t.Errorf("%d instances and %d bindings are left", instances, bindings)
		}
		if left := saved[map[string]any](t, r.Then(), "btp")["cleanupLeft"]; left != nil {
			t.Errorf("saved is still %v", left)
		}
	}
}

func TestBTPCleanup_Suspension_GoesOnAfterTakingFinalizersAway(t *testing.T) {
	w := newWorld(t)
	op := w.stuck()
	op.Plan.Name, op.Temporary, op.FirstTried = "trial", true, 30*time.Minute
	r := w.run(btpCleanup, op)
	if r.Outcome != retry {
		t.Fatalf("want a count first: %s, %+v", r.Outcome, r.Error)
	}
	op = r.Then()
	op.FirstTried = 30 * time.Minute
	if r = w.run(btpCleanup, op); r.Outcome != succeeded {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
	if instances, bindings := w.btpLeft(); instances+bindings != 0 {
		t.Errorf("%d instances and %d bindings are left", instances, bindings)
	}
}

// The count of an earlier deprovisioning has no meaning for this one.
func TestBTPCleanup_CountOfEarlierOperation_IsIgnored(t *testing.T) {
	w := newWorld(t)
	op := w.stuck()
	op.FirstTried = 30 * time.Minute
	op = w.run(btpCleanup, op).Then()
	op.ID, op.FirstTried = "0193a3c5-0000-7000-8000-00000000aaaa", 0
	if r := w.run(btpCleanup, op); r.Outcome != retry || r.Error != nil {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
	if instances, bindings := w.btpLeft(); instances != 2 || bindings != 1 {
		t.Errorf("%d instances and %d bindings are left, want 2 and 1", instances, bindings)
	}
}

func TestBTPCleanup_AccountCleanup_TriesOnce(t *testing.T) {
	w := newWorld(t)
	op := w.stuck()
	op.UserAgent = "accountcleanup-job"
	for path, prefix := range map[string]string{
		"the kubeconfig": "/provisioner",
		"the list":       ofRuntime(t, op, services+"servicebindings"),
		"a deletion":     ofRuntime(t, op, services+"namespaces/default/servicebindings/db"),
	} {
		w.door.fault.Store(&fault{prefix: prefix, status: http.StatusInternalServerError, body: "{}"})
		if r := w.run(btpCleanup, op); r.Outcome != event.OutcomeNotCompleted || r.Error == nil {
			t.Errorf("%s is answered with 500: %s, %+v, want not completed", path, r.Outcome, r.Error)
		}
		w.door.fault.Store(nil)
	}
	if r := w.run(btpCleanup, op); r.Outcome != succeeded {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
	if instances, bindings := w.btpLeft(); instances+bindings != 0 {
		t.Errorf("%d instances and %d bindings are left", instances, bindings)
	}
}

func TestBTPCleanup_ReadyRuntimeWithoutKubeconfig_IsTriedAgain(t *testing.T) {
	w := newWorld(t)
	op := deprovision(w.reached())
	for state, want := range map[string]event.Outcome{"Succeeded": retry, "InProgress": skipped, "Failed": skipped} {
		w.door.fault.Store(&fault{
			prefix: "/provisioner", status: http.StatusOK,
			body: `{"data":{"result":{"lastOperationStatus":{"operation":"Provision","state":"` + state + `"},"runtimeConfiguration":{"kubeconfig":""}}}}`,
		})
		if r := w.run(btpCleanup, op); r.Outcome != want {
			t.Errorf("a creation is %s: %s, %q, %+v, want %s", state, r.Outcome, r.Message, r.Error, want)
		}
	}
	w.door.fault.Store(nil)
}
