package deploy_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// install creates the chart's objects like an administrator, and removes them after the test.
func install(t *testing.T, values string) {
	t.Helper()
	c := shared.Cluster(t).Client(t, client.Options{Scheme: knownTypes(t)})
	admin := client.WithFieldValidation(c, "Strict")
	objects := rendered(t, values)
	// In a cluster without controllers a namespace is never removed, so the tests share them.
	namespace := &corev1.Namespace{}
	namespace.Name = kubetest.All[*appsv1.Deployment](objects)[0].Namespace
	if err := admin.Create(t.Context(), namespace); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if _, ok := o.(*apiextensionsv1.CustomResourceDefinition); ok || o.GetObjectKind().GroupVersionKind().Group == "monitoring.coreos.com" {
			continue // the cluster already has the one, and does not serve the other
		}
		err := admin.Create(t.Context(), o)
		if _, ok := o.(*corev1.Namespace); ok && apierrors.IsAlreadyExists(err) {
			continue
		}
		require.NoErrorf(t, err, "create %s", describe(o))
		t.Cleanup(func() {
			if err := admin.Delete(context.WithoutCancel(t.Context()), o); err != nil {
				t.Errorf("delete %s: %v", describe(o), err)
			}
		})
	}
}

func TestChart_APIServer_AcceptsIt(t *testing.T) { //nolint:paralleltest // its cases share a cluster
	for name, values := range valueSets() {
		t.Run(name, func(t *testing.T) { install(t, values) }) //nolint:paralleltest // they make the same ClusterRoles
	}
}

// TestRoles_Manager_CanCreateAndRemoveOperand uses server-side apply, like the manager, so that Kubernetes itself checks the roles: a rule
// that the manager does not have cannot be granted.
func TestRoles_Manager_CanCreateAndRemoveOperand(t *testing.T) { //nolint:paralleltest // it shares a cluster
	install(t, "")
	const in = "kyma-system"
	manager, err := client.New(shared.Cluster(t).ServiceAccountConfig(t, in, "btp-manager"), client.Options{Scheme: knownTypes(t)})
	require.NoError(t, err)
	testkit.Eventually(t, time.Minute, "the roles in force", func() bool {
		return manager.List(t.Context(), &v1alpha1.BtpOperatorList{}) == nil && manager.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(in)) == nil
	})
	c, err := render.Load(operand.Chart())
	require.NoError(t, err)
	objects, err := c.Render(render.Release{Name: "sap-btp-operator", Namespace: in}, nil)
	require.NoError(t, err)
	for range 2 { // once to create them, once to change them
		for _, o := range objects {
			if err := manager.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.ForceOwnership, client.FieldOwner("btp-manager")); err != nil {
				t.Errorf("apply %s: %v", describe(o), err)
			}
		}
	}
	slices.Reverse(objects)
	for _, o := range objects {
		if err := manager.Delete(t.Context(), o); err != nil {
			t.Errorf("delete %s: %v", describe(o), err)
		}
	}
	foreign := &corev1.ConfigMap{}
	foreign.Namespace, foreign.Name = "default", "kube-root-ca.crt"
	if err := manager.Delete(t.Context(), foreign); !apierrors.IsForbidden(err) {
		t.Errorf("deleting a ConfigMap of another namespace: %v, want that it is forbidden", err)
	}
}
