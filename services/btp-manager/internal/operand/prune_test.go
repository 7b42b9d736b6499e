package operand_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
)

// renamed returns obj with another name.
func renamed(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	if group, _, _ := unstructured.NestedString(obj.Object, "spec", "group"); group != "" {
		kind, _, _ := unstructured.NestedString(obj.Object, "spec", "names", "kind")
		_ = unstructured.SetNestedField(obj.Object, "new"+strings.ToLower(kind)+"s", "spec", "names", "plural")
		_ = unstructured.SetNestedField(obj.Object, "new"+strings.ToLower(kind), "spec", "names", "singular")
		_ = unstructured.SetNestedField(obj.Object, "New"+kind, "spec", "names", "kind")
		_ = unstructured.SetNestedField(obj.Object, "New"+kind+"List", "spec", "names", "listKind")
	}
	obj.SetName("new" + obj.GetName())
	return obj
}

func names(objs []*unstructured.Unstructured) map[string]bool {
	out := map[string]bool{}
	for _, obj := range objs {
		out[operand.RefOf(obj).String()] = true
	}
	return out
}

func TestApply_NewChart_RemovesObsoleteObjects(t *testing.T) {
	b := setup(t)
	for _, c := range []struct {
		name string
		next func() []*unstructured.Unstructured
		// removed is the number of removed objects.
		removed int
	}{
		{"every object has another name", func() []*unstructured.Unstructured {
			objs := chart(t, "2")
			for i, obj := range objs {
				objs[i] = renamed(obj)
			}
			return objs
		}, 13},
		{"some objects have another name", func() []*unstructured.Unstructured {
			objs := chart(t, "2")
			for i := range 5 {
				objs[2*i] = renamed(objs[2*i])
			}
			return objs
		}, 5},
		{"objects are gone", func() []*unstructured.Unstructured { return append(chart(t, "2")[1:6], chart(t, "2")[10]) }, 7},
		{"only the version is another", func() []*unstructured.Unstructured { return chart(t, "2") }, 0},
		{"names change and the version does not", func() []*unstructured.Unstructured {
			objs := chart(t, "1")
			objs[2], objs[6] = renamed(objs[2]), renamed(objs[6])
			return objs
		}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := *b
			b.t = t
			b.empty(t.Context())
			b.apply(chart(t, "1"))
			next := c.next()
			done := b.apply(next)
			equal(t, "removed", len(done.Removed), c.removed)
			// A definition is removed shortly after its deletion.
			testkit.Eventually(t, waitTimeout, "only the new objects", func() bool {
				b.apply(next)
				return len(b.names()) == len(next)
			})
			got := map[string]bool{}
			for _, item := range b.all(t.Context()) {
				if item.GetName() != operand.InventoryName {
					got[operand.RefOf(&item).String()] = true
				}
				equal(t, "version of "+item.GetName(), item.GetLabels()["chart-version"], next[0].GetLabels()["chart-version"])
			}
			equal(t, "objects", got, names(next))
			equal(t, "applied again", b.apply(next), operand.Applied{})
			equal(t, "inventory", strings.Count(b.inventory().Data["objects"], "\n"), len(next))
		})
	}
}

func TestApply_ObsoleteWithoutLabel_IsKept(t *testing.T) {
	b := setup(t)
	stays, released := configMap(t, "1", "config", "one"), configMap(t, "1", "released", "one")
	b.apply([]*unstructured.Unstructured{stays, released})
	b.patch(released, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"somebody"}}}`)
	equal(t, "applied", b.apply([]*unstructured.Unstructured{stays}), operand.Applied{})
	equal(t, "objects", b.names(), []string{"ConfigMap kyma-system/config", "ConfigMap kyma-system/released"})
}

func TestApply_OtherAPIVersion_IsNotObsolete(t *testing.T) {
	b := setup(t)
	text := func(version string) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{object(t, "1", "{apiVersion: autoscaling/"+version+
			", kind: HorizontalPodAutoscaler, metadata: {name: operand}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: operand}}}")}
	}
	b.apply(text("v1"))
	uid := b.get(text("v2")[0]).GetUID()
	equal(t, "removed", len(b.apply(text("v2")).Removed), 0)
	equal(t, "uid", b.get(text("v2")[0]).GetUID(), uid)
	equal(t, "inventory", b.inventory().Data["objects"], "autoscaling/v2 HorizontalPodAutoscaler kyma-system/operand\n")
}

// A cluster that was upgraded meanwhile has the object in a version that the inventory does not contain.
func TestApply_UnservedAPIVersion_IsRemoved(t *testing.T) {
	for name, remove := range map[string]func(b *bundle){
		"as obsolete":         func(b *bundle) { b.settle([]*unstructured.Unstructured{configMap(b.t, "2", "config", "x")}) },
		"with all the others": func(b *bundle) { b.remove(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			scaler := object(t, "1", "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: operand}, "+
				"spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: operand}}}")
			b.apply([]*unstructured.Unstructured{scaler})
			cm := b.inventory()
			lines := strings.ReplaceAll(cm.Data["objects"], "autoscaling/v2 ", "autoscaling/v2beta2 ")
			cm.Data = map[string]string{"objects": lines, "sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(lines)))}
			require.NoError(t, b.client.Update(t.Context(), cm))
			remove(b)
			if b.exists(scaler) {
				t.Error("it is left")
			}
		})
	}
}

func TestApply_OtherAPIGroup_IsNotObsolete(t *testing.T) {
	b := setup(t)
	old := object(t, "1", "{apiVersion: v1, kind: Event, metadata: {name: e}, involvedObject: {kind: Pod, name: x, namespace: kyma-system}, reason: A, type: Normal}")
	same := object(t, "1", "{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: e}, regarding: {kind: Pod, name: x, namespace: kyma-system}, reason: A, type: Normal}")
	t.Cleanup(func() { _ = b.client.Delete(context.Background(), old) })
	b.apply([]*unstructured.Unstructured{old})
	uid := b.get(old).GetUID()
	equal(t, "removed", len(b.apply([]*unstructured.Unstructured{same}).Removed), 0)
	equal(t, "uid", b.get(old).GetUID(), uid)
}

func TestApply_ObsoleteDefinitionInUse_IsKept(t *testing.T) {
	b := setup(t)
	gadget := definition(t, "1", "Gadget")
	objs := []*unstructured.Unstructured{configMap(t, "2", "config", "one")}
	b.apply([]*unstructured.Unstructured{gadget, objs[0]})
	b.make(thing(t, "Gadget", "mine"))
	for range 2 {
		done := b.apply(objs)
		equal(t, "kept", done.Kept, []*operand.InUseError{{
			Definition: operand.RefOf(gadget), First: []operand.Ref{operand.RefOf(thing(t, "Gadget", "mine"))},
		}})
		equal(t, "removed", len(done.Removed), 0)
	}
	if !b.exists(thing(t, "Gadget", "mine")) {
		t.Fatal("the custom resource is gone")
	}
	require.NoError(t, b.client.Delete(t.Context(), thing(t, "Gadget", "mine")))
	equal(t, "removed", b.apply(objs).Removed, []operand.Ref{operand.RefOf(gadget)})
	testkit.Eventually(t, waitTimeout, "the end of the definition", func() bool { return !b.exists(gadget) })
	b.apply(objs)
	equal(t, "inventory", b.inventory().Data["objects"], "v1 ConfigMap kyma-system/config\n")
}

// An object with a finalizer stays in the inventory, and is not reported as removed again.
func TestApply_ObsoleteObjectSlow_StaysInInventory(t *testing.T) {
	b := setup(t)
	stays, slow := configMap(t, "1", "config", "one"), configMap(t, "1", "slow", "one")
	b.apply([]*unstructured.Unstructured{stays, slow})
	b.patch(slow, `{"metadata":{"finalizers":["keb.test/hold"]}}`)
	equal(t, "removed", b.apply([]*unstructured.Unstructured{stays}).Removed, []operand.Ref{operand.RefOf(slow)})
	equal(t, "applied again", b.apply([]*unstructured.Unstructured{stays}), operand.Applied{})
	equal(t, "inventory", b.inventory().Data["objects"], "v1 ConfigMap kyma-system/config\nv1 ConfigMap kyma-system/slow\n")

	// The chart contains it again while it is being deleted.
	done := b.apply([]*unstructured.Unstructured{stays, slow})
	equal(t, "held", done, operand.Applied{Held: []operand.NotReady{{operand.RefOf(slow), "is being deleted and waits for keb.test/hold"}}})
	b.patch(slow, `{"metadata":{"finalizers":null}}`)
	equal(t, "changed", b.apply([]*unstructured.Unstructured{stays, slow}).Changed, []operand.Change{{operand.RefOf(slow), operand.Created}})
}

func TestApply_Failed_RemovesNothing(t *testing.T) {
	b := setup(t)
	old := configMap(t, "1", "old", "one")
	b.apply([]*unstructured.Unstructured{old})
	bad := object(t, "2", "{apiVersion: v1, kind: Service, metadata: {name: bad}, spec: {ports: [{port: 99999}]}}")
	if _, err := b.operand.Apply(t.Context(), []*unstructured.Unstructured{bad}); err == nil {
		t.Fatal("a Service with port 99999 was applied")
	}
	equal(t, "objects", b.names(), []string{"ConfigMap kyma-system/old"})
}

func TestApply_ObsoleteObjectUndeletable_IsRetried(t *testing.T) {
	b := setup(t)
	old, other, now := configMap(t, "1", "old", "one"), configMap(t, "1", "other", "one"), configMap(t, "2", "now", "one")
	b.apply([]*unstructured.Unstructured{old, other})
	refused := errors.New("refused")
	c := interceptor.NewClient(b.client, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if o.GetName() == "old" {
				return refused
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	_, err := operand.New(operand.Config{}, operand.Deps{Client: c}).Apply(t.Context(), []*unstructured.Unstructured{now})
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "ConfigMap kyma-system/old") {
		t.Errorf("the error does not name the object and the cause: %v", err)
	}
	equal(t, "objects", b.names(), []string{"ConfigMap kyma-system/now", "ConfigMap kyma-system/old"})
	equal(t, "removed", b.apply([]*unstructured.Unstructured{now}).Removed, []operand.Ref{operand.RefOf(old)})
}
