package landscape_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/keb/landscape"
)

// pool is the secret bindings of the garden.
type pool struct {
	t *testing.T
	dynamic.ResourceInterface
}

func bindingPool(t *testing.T, w *world) pool {
	t.Helper()
	return pool{t, authorized(w, "/k8s/gardener").Resource(bindings).Namespace("garden-kyma")}
}

// mark marks a free binding as claimed and released, and returns its name.
func (p pool) mark() string {
	p.t.Helper()
	list, err := p.List(p.t.Context(), metav1.ListOptions{LabelSelector: "hyperscalerType=azure,!tenantName,!dirty,shared!=true"})
	if err != nil || len(list.Items) == 0 {
		p.t.Fatalf("%d free bindings, %v", len(list.Items), err)
	}
	binding := list.Items[0]
	labels := binding.GetLabels()
	labels["tenantName"], labels["dirty"] = "ga-1", "true"
	binding.SetLabels(labels)
	_, err = p.Update(p.t.Context(), &binding, metav1.UpdateOptions{})
	require.NoError(p.t, err)
	return binding.GetName()
}

// claimed reports whether a binding has the labels of a claim. It fails the test if only one of them is left.
func (p pool) claimed(name string) bool {
	p.t.Helper()
	binding, err := p.Get(p.t.Context(), name, metav1.GetOptions{})
	require.NoError(p.t, err)
	_, tenant := binding.GetLabels()["tenantName"]
	_, dirty := binding.GetLabels()["dirty"]
	if tenant != dirty || binding.GetLabels()["hyperscalerType"] != "azure" {
		p.t.Errorf("labels %v", binding.GetLabels())
	}
	return dirty
}

func TestCleanup_DirtyBinding_IsReleased(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), newClock()
	w := open(t, dir, c)
	name := bindingPool(t, w).mark()
	c.Advance(landscape.DefaultCleanTime - time.Second)
	if !bindingPool(t, w).claimed(name) {
		t.Error("it is clean too early")
	}
	w.close()
	c.Advance(time.Second)
	if w = open(t, dir, c); bindingPool(t, w).claimed(name) {
		t.Error("it is still dirty after its time and a reopen")
	}
}

func TestCleanup_BindingUsedByShoot_IsKept(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := bindingPool(t, w)
	name := p.mark()
	garden := authorized(w, "/k8s/gardener").Resource(shootsGVR).Namespace("garden-kyma")
	shoot := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
		"metadata": map[string]any{"name": "c-1", "annotations": map[string]any{"confirmation.gardener.cloud/deletion": "true"}},
		"spec":     map[string]any{"secretBindingName": name},
	}}
	_, err := garden.Create(t.Context(), shoot, metav1.CreateOptions{})
	require.NoError(t, err)
	w.clock.Advance(landscape.DefaultCleanTime)
	if !p.claimed(name) {
		t.Error("it is clean although a shoot uses it")
	}
	require.NoError(t, garden.Delete(t.Context(), "c-1", metav1.DeleteOptions{}))
	w.clock.Advance(landscape.DefaultCleanTime)
	if p.claimed(name) {
		t.Error("it is still dirty although no shoot uses it any more")
	}
}
