package stepworkers_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

const btpCleanup = "BTPOperator_Cleanup"

// btpLeft expects numbers of service instances and bindings in all runtimes.
func (w *world) btpLeft(instances, bindings int64) {
	w.t.Helper()
	w.holds("runtimes/ServiceInstance", instances)
	w.holds("runtimes/ServiceBinding", bindings)
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
	w.btpLeft(0, 0)
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
			w.btpLeft(test.instances, test.bindings)
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
	w.btpLeft(2, 1)
	if r := refuse("namespaces/default/serviceinstances/queue", http.StatusForbidden); r.Outcome != retry {
		t.Errorf("refusing an instance: %s, %+v", r.Outcome, r.Error)
	}
	w.btpLeft(1, 0)
	w.expect(btpCleanup, op, event.OutcomeSucceeded)
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
	w.expect(btpCleanup, op, waiting)
	op.FirstTried = 30 * time.Minute
	counted := w.run(btpCleanup, op)
	if counted.Outcome != retry {
		t.Fatalf("after 30 minutes: %s, want a count first", counted.Outcome)
	}
	w.btpLeft(2, 1)
	op = counted.Then()
	op.FirstTried = 30 * time.Minute
	const want = "2 service instances and 1 service binding were left after 30m0s; their finalizers were removed"
	// The second time, the result of the first execution is lost with the worker's process.
	for range 2 {
		r := w.run(btpCleanup, op)
		if r.Outcome != event.OutcomeNotCompleted || r.Error == nil || r.Error.Message != want {
			t.Errorf("%s, %+v, want not completed: %s", r.Outcome, r.Error, want)
		}
		w.btpLeft(0, 0)
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
	w.btpLeft(0, 0)
}

// The count of an earlier deprovisioning has no meaning for this one.
func TestBTPCleanup_CountOfEarlierOperation_IsIgnored(t *testing.T) {
	w := newWorld(t)
	op := w.stuck()
	op.FirstTried = 30 * time.Minute
	op = w.run(btpCleanup, op).Then()
	op.ID, op.FirstTried = "0193a3c5-0000-7000-8000-00000000aaaa", 0
	w.expect(btpCleanup, op, waiting)
	w.btpLeft(2, 1)
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
		if r := w.during(fault{prefix: prefix, status: http.StatusInternalServerError, body: "{}"}, btpCleanup, op); r.Outcome != event.OutcomeNotCompleted || r.Error == nil {
			t.Errorf("%s is answered with 500: %s, %+v, want not completed", path, r.Outcome, r.Error)
		}
	}
	w.expect(btpCleanup, op, succeeded)
	w.btpLeft(0, 0)
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

// runtimeKubeconfig returns the kubeconfig of op's runtime.
func (w *world) runtimeKubeconfig(op workertest.Operation) string {
	w.t.Helper()
	d := saved[provisioner.Details](w.t, op, provisioner.Name)
	client, err := provisioner.NewClient(provisioner.ClientConfig{ProvisionerURL: w.url + "/provisioner/graphql"}, extclient.Deps{})
	require.NoError(w.t, err)
	status, err := client.RuntimeStatus(w.t.Context(), op.Context.GlobalAccountID, d.RuntimeID)
	require.NoError(w.t, err)
	return status.Configuration.Kubeconfig
}

// runtime returns a client of op's runtime.
func (w *world) runtime(op workertest.Operation) *kube.Client {
	w.t.Helper()
	runtime, err := kube.FromKubeconfig("runtime", []byte(w.runtimeKubeconfig(op)), 0, extclient.Deps{})
	require.NoError(w.t, err)
	w.t.Cleanup(runtime.Close)
	return runtime
}

// customer adds a service instance with a binding to the runtime.
func (w *world) customer(op workertest.Operation, finalizers ...any) {
	w.t.Helper()
	w.customerHas(op, "db", finalizers...)
}

func (w *world) customerHas(op workertest.Operation, name string, finalizers ...any) {
	w.t.Helper()
	runtime := w.runtime(op)
	for kind, resource := range map[string]schema.GroupVersionResource{
		"ServiceInstance": kube.ServiceInstances, "ServiceBinding": kube.ServiceBindings,
	} {
		meta := map[string]any{"name": name, "namespace": "default"}
		if len(finalizers) > 0 {
			meta["finalizers"] = finalizers
		}
		err := runtime.Create(w.t.Context(), resource, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "services.cloud.sap.com/v1", "kind": kind, "metadata": meta,
		}})
		require.NoError(w.t, err)
	}
}

func TestClusterID_EveryAttempt_IsTheSame(t *testing.T) {
	w := newWorld(t)
	ids := map[any]bool{}
	for range 2 {
		ids[w.run("BTPOperatorOverrides", w.order()).Details["smClusterId"]] = true
	}
	op := w.all(provisioning, w.order())
	ids[saved[map[string]any](t, op, "btp")["smClusterId"]] = true
	if len(ids) != 1 || ids[nil] {
		t.Errorf("cluster ids %v", ids)
	}
}

func TestDeleteKymaResource_Missing_IsSkipped(t *testing.T) {
	w := newWorld(t)
	op := deprovision(w.order())
	w.expect("Delete_Kyma_Resource", op, skipped)
	w.expect("Check_Kyma_Resource_Deleted", op, succeeded)
}

func TestIASDeregistration_ServiceProviders_AreDeleted(t *testing.T) {
	w := newWorld(t)
	op := deprovision(w.order())
	add := func(name string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/ias/service/sps",
			strings.NewReader("company_id=global&sp_name="+strings.ReplaceAll(name, " ", "+")))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.SetBasicAuth("keb", "keb")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode >= 300 {
			t.Fatalf("add %s: %d", name, resp.StatusCode)
		}
	}
	add("SKR Grafana (instanceID: 5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20)")
	add("SKR Dex (instanceID: 5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20)")
	add("SKR Grafana (instanceID: another)")
	before := w.system("ias").Objects
	r := w.run("IAS_Deregistration", op)
	after := w.system("ias").Objects
	total := func(held map[string]int64) (n int64) {
		for _, v := range held {
			n += v
		}
		return n
	}
	if r.Outcome != succeeded || total(before)-total(after) != 2 {
		t.Errorf("%s, %+v: %v became %v", r.Outcome, r.Error, before, after)
	}
}
