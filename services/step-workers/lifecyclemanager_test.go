package stepworkers_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

const kymaID = "0f5e2a6c-7d0b-4a58-9a51-2f6f3c1d8e90"

// The steps that use the control plane, by operation.
var (
	kymaProvision = []string{
		"Provision_Initialization", "Init_Kyma_Template", "Overrides_From_Secrets_And_Config_Step", "Sync_Kubeconfig", "Apply_Kyma",
	}
	kymaUpgrade = []string{
		"Upgrade_Init_Kyma_Version", "Init_Kyma_Template", "Sync_Kubeconfig", "Apply_Kyma", "Overrides_From_Secrets_And_Config_Step",
	}
	kymaDeprovision = []string{"Delete_Kyma_Resource", "Check_Kyma_Resource_Deleted", "Delete_Kubeconfig"}
)

// createdRuntime returns an operation of a plan whose runtime is created; its kubeconfig is in the stage memory.
func (w *world) createdRuntime(plan string) workertest.Operation {
	op := w.order()
	op.Plan.Name, op.Plan.ID = plan, "plan-"+plan
	op.Details = map[string]any{provisioner.Name: provisioner.Details{RuntimeID: strings.ToUpper(kymaID)}}
	op.Remembered = memoryWith("kubeconfig of the runtime")
	return op
}

// memoryWith returns a stage memory with a kubeconfig.
func memoryWith(kubeconfig string) map[string][]byte {
	return map[string][]byte{provisioner.KubeconfigKey: []byte(kubeconfig)}
}

// upgradedRuntime returns an upgrade of that runtime, after its subaccount was moved to another global account.
func (w *world) upgradedRuntime(op workertest.Operation) workertest.Operation {
	next := w.upgrade(op, event.UpgradeKyma, "k-1")
	next.Context.GlobalAccountID, next.Remembered = "ga-2", memoryWith("kubeconfig of the runtime")
	return next
}

func (w *world) controlPlane() *kube.Client {
	w.t.Helper()
	client, err := kube.Open("control-plane", kube.Config{URL: w.url + "/k8s/control-plane", Token: "keb"}, extclient.Deps{})
	require.NoError(w.t, err)
	w.t.Cleanup(client.Close)
	return client
}

func (w *world) held(kind schema.GroupVersionResource, name string) *unstructured.Unstructured {
	w.t.Helper()
	got, err := w.controlPlane().Get(w.t.Context(), kind, "kcp-system", name)
	require.NoError(w.t, err)
	return got
}

func TestControlPlane_RequestsOfPlan_AreAsRecorded(t *testing.T) {
	for _, plan := range []string{"azure", "azure_lite", "aws", "gcp", "openstack", "trial", "free", "own_cluster", "preview"} {
		t.Run(plan, func(t *testing.T) {
			w := newWorld(t)
			golden := func(operation string) {
				w.golden("control-plane_"+plan+"_"+operation, "/k8s/control-plane", "/artifacts")
			}
			op := w.all(kymaProvision, w.createdRuntime(plan))
			golden("provision")
			if plan != "preview" {
				op = w.all(kymaUpgrade, w.upgradedRuntime(op))
				golden("upgradeKyma")
			}
			if plan == "own_cluster" {
				update := w.update(op, "u-1")
				update.Context.GlobalAccountID = "ga-2"
				update.Update.Credentials = []string{event.CredentialsKubeconfig}
				update.Remembered = memoryWith("the replaced kubeconfig")
				op = w.all([]string{"Sync_Kubeconfig"}, update)
				golden("update")
			}
			w.all(kymaDeprovision, deprovision(op))
			golden("deprovision")
		})
	}
}

func TestKymaResource_OfPlan_HasChannelOfItsTemplate(t *testing.T) {
	for plan, want := range map[string]string{"azure": "regular", "preview": "fast"} {
		w := newWorld(t)
		w.all(kymaProvision, w.createdRuntime(plan))
		if got, _, _ := unstructured.NestedString(w.held(kube.Kymas, kymaID).Object, "spec", "channel"); got != want {
			t.Errorf("plan %s: channel %q, want %q", plan, got, want)
		}
	}
}

func TestKymaResource_Upgrade_KeepsModulesOfUser(t *testing.T) {
	w := newWorld(t)
	op := w.all(kymaProvision, w.createdRuntime("azure"))
	const spec = `{"channel":"fast","modules":[{"name":"btp-operator"},{"name":"serverless","channel":"regular"}]}`
	require.NoError(t, w.controlPlane().Patch(t.Context(), kube.Kymas, "kcp-system", kymaID, []byte(`{"spec":`+spec+`}`)))
	w.all(kymaUpgrade, w.upgradedRuntime(op))
	got := w.held(kube.Kymas, kymaID)
	var want any
	require.NoError(t, json.Unmarshal([]byte(spec), &want))
	equal(t, "spec after the upgrade", want, got.Object["spec"])
	if account := got.GetLabels()["kyma-project.io/global-account-id"]; account != "ga-2" {
		t.Errorf("the label of the global account is %q", account)
	}
}

func TestKymaResource_WithKubeconfigSecret_BecomesReady(t *testing.T) {
	w := newWorld(t)
	state := func() string {
		state, _, _ := unstructured.NestedString(w.held(kube.Kymas, kymaID).Object, "status", "state")
		return state
	}
	op := w.all(without(kymaProvision, "Sync_Kubeconfig"), w.createdRuntime("azure"))
	w.advance(2 * takes)
	if got := state(); got != "Processing" {
		t.Errorf("without the Secret the state is %q", got)
	}
	op.Remembered = memoryWith("kubeconfig of the runtime")
	op = w.all([]string{"Sync_Kubeconfig"}, op)
	w.advance(2 * takes)
	if got := state(); got != "Ready" {
		t.Errorf("with the Secret the state is %q", got)
	}
	secrets := func() int64 { return w.objects()["control-plane/Secret"] }
	before := secrets()
	w.all(kymaDeprovision, deprovision(op))
	if secrets() != before-1 {
		t.Error("the Secret is left after the deprovisioning")
	}
}

func TestSyncKubeconfig_WithSecretAsItShallBe_WritesNothing(t *testing.T) {
	w := newWorld(t)
	op := w.all(kymaProvision, w.createdRuntime("azure"))
	op.Remembered = memoryWith("kubeconfig of the runtime")
	for _, c := range w.calls(func() { w.all([]string{"Sync_Kubeconfig", "Apply_Kyma"}, op) }) {
		if c.method != "GET" {
			t.Errorf("%s %s", c.method, c.path)
		}
	}
}

// The broker rejects such ids in new orders, but older instances may have them.
func TestKymaResource_IDsThatCannotBeLabels_AreLeftOut(t *testing.T) {
	w := newWorld(t)
	op := w.createdRuntime("azure")
	op.InstanceID, op.Context.SubaccountID = "an instance/1", strings.Repeat("s", 64)
	op = w.all(kymaProvision, op)
	for _, kept := range []*unstructured.Unstructured{w.held(kube.Kymas, kymaID), w.held(kube.Secrets, "kubeconfig-"+kymaID)} {
		for _, label := range []string{"kyma-project.io/instance-id", "kyma-project.io/subaccount-id"} {
			if value, ok := kept.GetLabels()[label]; ok {
				t.Errorf("%s %s has the label %s with the value %q", kept.GetKind(), kept.GetName(), label, value)
			}
		}
		if got := kept.GetLabels()["kyma-project.io/global-account-id"]; got != "ga-1" {
			t.Errorf("%s %s: the label of the global account is %q", kept.GetKind(), kept.GetName(), got)
		}
	}
	op = w.all(kymaUpgrade, w.upgradedRuntime(op))
	w.all(kymaDeprovision, deprovision(op))
	w.advance(takes)
	for kind, name := range map[schema.GroupVersionResource]string{kube.Kymas: kymaID, kube.Secrets: "kubeconfig-" + kymaID} {
		if _, err := w.controlPlane().Get(t.Context(), kind, "kcp-system", name); !kube.IsNotFound(err) {
			t.Errorf("%s %s is left: %v", kind.Resource, name, err)
		}
	}
}

// The results of the steps that create the objects are lost, and a late request creates the objects once more.
func TestKymaResource_OwnNamespace_UnsavedIsRemoved(t *testing.T) {
	w := newWorld(t)
	patch, err := json.Marshal(map[string]any{"data": map[string]any{
		"azure": "additional-components: []\nkyma-template: '{apiVersion: operator.kyma-project.io/v1beta2, kind: Kyma, metadata: {namespace: other}}'",
	}})
	require.NoError(t, err)
	require.NoError(t, w.controlPlane().Patch(t.Context(), kube.ConfigMaps, "kcp-system", "keb-runtime-configuration", patch))
	require.NoError(t, w.controlPlane().Create(t.Context(), kube.Namespaces, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "other"},
	}}))
	op := w.all([]string{"Init_Kyma_Template"}, w.createdRuntime("azure"))
	removal := deprovision(op)
	for range 2 {
		w.all([]string{"Sync_Kubeconfig", "Apply_Kyma"}, op)
		removal = w.all(kymaDeprovision, deprovision(removal))
		w.advance(takes)
		w.holds("control-plane/Kyma", 0)
		if list, err := w.controlPlane().List(t.Context(), kube.Secrets, "other", ""); err != nil || len(list) > 0 {
			t.Errorf("%d Secrets are left, error %v", len(list), err)
		}
	}
}

func TestInitKymaTemplate_UnusableTemplate_Fails(t *testing.T) {
	for name, test := range map[string]struct{ value, message string }{
		"missing":      {"additional-components: []", "key azure: kyma-template is missing"},
		"not YAML":     {"additional-components: []\nkyma-template: '{'", "key azure: kyma-template is not a YAML object"},
		"another kind": {"additional-components: []\nkyma-template: '{apiVersion: v1, kind: Secret}'", "key azure: kyma-template is not a resource of kind Kyma"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			patch, err := json.Marshal(map[string]any{"data": map[string]any{"azure": test.value}})
			require.NoError(t, err)
			require.NoError(t, w.controlPlane().Patch(t.Context(), kube.ConfigMaps, "kcp-system", "keb-runtime-configuration", patch))
			r := w.run("Init_Kyma_Template", w.order())
			if r.Outcome != failed || r.Error.Component != "k8s client - keb" || r.Error.Reason != "err_k8s_unexpected_object_error" ||
				!strings.Contains(r.Error.Message, test.message) {
				t.Errorf("%s, %+v", r.Outcome, r.Error)
			}
		})
	}
}
