package stepworkers_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

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

func TestCleanup_BindingsAndInstances_AreDeleted(t *testing.T) {
	w := newWorld(t)
	op := deprovision(w.all(provisioning, w.order()))
	w.customer(op)
	w.all([]string{"BTPOperator_Cleanup"}, op)
	if held := w.objects(); held["runtimes/ServiceBinding"]+held["runtimes/ServiceInstance"] != 0 {
		t.Errorf("left: %v", held)
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
	if r := w.run("Delete_Kyma_Resource", op); r.Outcome != skipped {
		t.Errorf("Delete_Kyma_Resource: %s, %+v", r.Outcome, r.Error)
	}
	if r := w.run("Check_Kyma_Resource_Deleted", op); r.Outcome != succeeded {
		t.Errorf("Check_Kyma_Resource_Deleted: %s, %+v", r.Outcome, r.Error)
	}
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
