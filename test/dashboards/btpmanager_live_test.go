package dashboards

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kube "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
	"github.com/kyma-project/keb/test/internal/harness"
)

const (
	btpChart  = repository + "deploy/helm/btp-manager/"
	namespace = "kyma-system"
)

// TestBTPManager_LiveCluster_PanelsHaveData takes BTP manager through the life of an operand: without credentials, not ready, ready,
// changed by a user of the cluster, and deleted with a service instance.
func TestBTPManager_LiveCluster_PanelsHaveData(t *testing.T) {
	t.Parallel()
	live(t)
	k := runtime.Cluster(t)
	o := operand{Client: newClient(t, k), t: t}
	deployments := k.Deployments(t, namespace)
	deployments.Hold()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, k.Environment.KubeConfig, 0o600))
	metrics := testkit.Addr(t)
	harness.Spawn(t, harness.BTPManager(t), nil, "--kubeconfig", kubeconfig, "--leader-elect=false", "--metrics-bind-address="+metrics,
		"--health-probe-bind-address=0", "--ready-check-interval=100ms", "--hard-delete-check-interval=200ms")
	prometheus := startPrometheus(t, btpChart+"alerts/btp-manager.yaml", map[string]string{"btp-manager": metrics})

	o.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	o.create(&v1alpha1.BtpOperator{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "btpoperator"}})
	o.await(v1alpha1.StateError)
	o.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sap-btp-manager"}, StringData: map[string]string{
		"clientid": "client", "clientsecret": "secret", "sm_url": "https://service-manager.example.com",
		"tokenurl": "https://token.example.com", "cluster_id": "cluster",
	}})
	o.await(v1alpha1.StateProcessing)
	prometheus.awaitScrape()
	deployments.Release()
	o.await(v1alpha1.StateReady)
	for range 2 {
		o.change()
		prometheus.awaitScrape()
	}
	instance := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "services.cloud.sap.com/v1", "kind": "ServiceInstance",
		"metadata": map[string]any{"namespace": "default", "name": "db", "finalizers": []any{"services.cloud.sap.com/sap-btp-finalizer"}},
		"spec":     map[string]any{"serviceOfferingName": "postgresql-db", "servicePlanName": "standard"},
	}}
	o.create(instance)
	o.delete(&v1alpha1.BtpOperator{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "btpoperator", Labels: map[string]string{v1alpha1.ForceDeleteLabel: "true"}}})
	o.await(v1alpha1.StateDeleting)
	prometheus.awaitScrape()
	instance.SetFinalizers(nil)
	require.NoError(t, o.Patch(t.Context(), instance, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))

	awaitPanels(t, prometheus, []board{read(t, btpChart+"dashboards/btp-manager.json")}, []map[string]string{nil}, map[string]string{})
	if _, problems := prometheus.evaluated(); len(problems) > 0 {
		t.Error(problems)
	}
}

// operand is what BTP manager keeps in a cluster.
type operand struct {
	client.Client

	t *testing.T
}

func newClient(t *testing.T, k *kubetest.Cluster) client.Client {
	t.Helper()
	scheme := kube.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	c, err := client.New(k.Config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

func (o operand) create(object client.Object) {
	o.t.Helper()
	require.NoError(o.t, o.Create(o.t.Context(), object))
}

// delete deletes an object, after it has got the labels that it is given with.
func (o operand) delete(object client.Object) {
	o.t.Helper()
	labels := object.GetLabels()
	key := client.ObjectKeyFromObject(object)
	testkit.Eventually(o.t, limit, "a label on "+key.Name, func() bool {
		if err := o.Get(o.t.Context(), key, object); err != nil {
			return false
		}
		object.SetLabels(labels)
		return o.Update(o.t.Context(), object) == nil
	})
	require.NoError(o.t, o.Delete(o.t.Context(), object))
}

// await waits until the BtpOperator is in that state.
func (o operand) await(state v1alpha1.State) {
	o.t.Helper()
	testkit.Eventually(o.t, limit, "the state "+string(state), func() bool {
		var cr v1alpha1.BtpOperator
		err := o.Get(o.t.Context(), client.ObjectKey{Namespace: "default", Name: "btpoperator"}, &cr)
		return err == nil && cr.Status.State == state
	})
}

// change changes a Deployment of the operand as a user of the cluster, and waits until BTP manager has restored it.
func (o operand) change() {
	o.t.Helper()
	var list appsv1.DeploymentList
	if err := o.List(o.t.Context(), &list, client.InNamespace(namespace)); err != nil || len(list.Items) == 0 {
		o.t.Fatalf("%d Deployments of the operand: %v", len(list.Items), err)
	}
	d := list.Items[0]
	want := *d.Spec.Replicas
	patch := []byte(`{"spec":{"replicas":7}}`)
	require.NoError(o.t, o.Patch(o.t.Context(), &d, client.RawPatch("application/merge-patch+json", patch)))
	testkit.Eventually(o.t, limit, "the Deployment as it was", func() bool {
		err := o.Get(context.WithoutCancel(o.t.Context()), client.ObjectKeyFromObject(&d), &d)
		return err == nil && *d.Spec.Replicas == want
	})
}
