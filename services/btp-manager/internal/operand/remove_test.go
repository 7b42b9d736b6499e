package operand_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
)

// remove calls Remove until nothing is left.
func (b *bundle) remove(objs []*unstructured.Unstructured) {
	b.t.Helper()
	testkit.Eventually(b.t, waitTimeout, "the removal", func() bool {
		left, err := b.operand.Remove(b.t.Context(), objs, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		return len(left) == 0
	})
}

// refs returns the objects in the result of Remove.
func refs(left []operand.NotReady) []operand.Ref {
	var out []operand.Ref
	for _, n := range left {
		out = append(out, n.Ref)
	}
	return out
}

// bare returns obj without our labels.
func bare(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	obj.SetLabels(nil)
	return obj
}

func TestRemove_ForeignObjects_AreKept(t *testing.T) {
	b := setup(t)
	objs := append(chart(t, "1"), object(t, "1", "{apiVersion: v1, kind: Secret, metadata: {name: moved, namespace: elsewhere}}"))
	b.apply(objs)
	// These are the manager's objects, the operand's objects, and objects that no inventory contains.
	b.make(secret(t, "1", "ca-server-cert"))
	b.make(secret(t, "1", "webhook-server-cert"))
	b.make(bare(secret(t, "1", "sap-btp-operator-clusterid")))
	b.make(configMap(t, "0", "forgotten", "x"))
	b.make(clusterRole(t, "0", "forgotten"))
	b.make(object(t, "0", "{apiVersion: v1, kind: Secret, metadata: {name: forgotten, namespace: elsewhere}}"))

	for _, obj := range []*unstructured.Unstructured{
		configMap(t, "1", "users", "x"), secret(t, "1", "users"), clusterRole(t, "1", "users"), service(t, "1", "users"),
		deployment(t, "1", "users", "users"), definition(t, "1", "Users"),
		webhook(t, "1", "ValidatingWebhookConfiguration", "users"),
		object(t, "1", "{apiVersion: v1, kind: Secret, metadata: {name: users, namespace: elsewhere}}"),
	} {
		b.make(bare(obj))
	}
	b.remove(objs)
	equal(t, "objects", b.names(), []string{
		"ConfigMap kyma-system/users", "Secret elsewhere/users", "Secret kyma-system/users", "Service kyma-system/users",
		"Deployment kyma-system/users", "ClusterRole users", "ValidatingWebhookConfiguration users",
		"CustomResourceDefinition userss.keb.test",
	})
	if b.exists(configMap(t, "1", operand.InventoryName, "")) {
		t.Error("the inventory is still there")
	}
	b.remove(objs)
	b.remove(nil)
}

func TestRemove_NoChart_UsesInventory(t *testing.T) {
	b := setup(t)
	odd := object(t, "1", "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: operand}, value: 1}")
	b.apply(append(chart(t, "1"), odd))
	b.remove(nil)
	equal(t, "objects", b.names(), []string{})
}

func TestRemove_NoInventory_UsesLabels(t *testing.T) {
	b := setup(t)
	b.apply(chart(t, "1"))
	require.NoError(t, b.client.Delete(t.Context(), b.inventory()))
	b.remove(nil)
	equal(t, "objects", b.names(), []string{})
}

// The credentials may be in any namespace; without an inventory only their labels identify it.
func TestRemove_NoInventory_FindsMovedCredentials(t *testing.T) {
	b := setup(t)
	third := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "third"}}
	require.NoError(t, client.IgnoreAlreadyExists(b.client.Create(t.Context(), third)))
	in := func(namespace, name string) *unstructured.Unstructured {
		s := secret(t, "1", name)
		s.SetNamespace(namespace)
		return s
	}
	b.apply(append(chart(t, "1"), in("elsewhere", "operand-credentials")))
	// With an inventory, copies by users with the same labels belong to the users.
	b.make(in(third.Name, "operand-credentials"))
	b.remove(chart(t, "1"))
	equal(t, "objects", b.names(), []string{"Secret third/operand-credentials"})

	b.apply(append(chart(t, "1"), in("elsewhere", "operand-credentials")))
	b.make(in(third.Name, "users"))
	require.NoError(t, b.client.Delete(t.Context(), b.inventory()))
	b.remove(chart(t, "1"))
	equal(t, "objects without an inventory", b.names(), []string{"Secret third/users"})
}

func TestRemove_Keep_KeepsObjects(t *testing.T) {
	b := setup(t)
	b.apply(chart(t, "1"))
	b.make(configMap(t, "", "sap-btp-manager", "x"))
	left, err := b.operand.Remove(t.Context(), chart(t, "1"), func(r operand.Ref) bool {
		return r.Name == "sap-btp-manager" || r.Kind == "CustomResourceDefinition"
	})
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	equal(t, "objects", b.names(), []string{"ConfigMap kyma-system/sap-btp-manager", "CustomResourceDefinition gadgets.keb.test"})
}

func TestRemove_BtpOperatorDefinition_IsKept(t *testing.T) {
	b := setup(t)
	crd := object(t, "1", "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: btpoperators.operator.kyma-project.io}}")
	b.patch(crd, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"btp-manager"}}}`)
	t.Cleanup(func() {
		bare := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`))
		if err := b.client.Patch(context.Background(), crd, bare); err != nil {
			t.Error(err)
		}
	})
	b.remove(nil)
	if b.get(crd).GetDeletionTimestamp() != nil {
		t.Error("it is being deleted")
	}
}

// watched is a client that records its deletions.
func watched(b *bundle, deleted *[]string) *operand.Operand {
	c := interceptor.NewClient(b.client, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			*deleted = append(*deleted, operand.RefOf(o).String())
			return c.Delete(ctx, o, opts...)
		},
	})
	return operand.New(operand.Config{}, operand.Deps{Client: c})
}

func TestRemove_Phases_AreOrdered(t *testing.T) {
	b := setup(t)
	b.apply(chart(t, "1"))
	b.make(secret(t, "1", "ca-server-cert"))
	var deleted []string
	op := watched(b, &deleted)
	testkit.Eventually(t, waitTimeout, "the removal", func() bool {
		left, err := op.Remove(t.Context(), chart(t, "1"), nil)
		return err == nil && len(left) == 0
	})
	phases := [][]string{
		{"Deployment", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"},
		{"ClusterRole", "ClusterRoleBinding", "ConfigMap", "NetworkPolicy", "Role", "RoleBinding", "Service", "ServiceAccount"},
		{"Secret", "Secret"},
		{"CustomResourceDefinition"},
		{"ConfigMap"},
	}
	for _, want := range phases {
		var got []string
		for _, name := range deleted[:min(len(want), len(deleted))] {
			got = append(got, strings.Fields(name)[0])
		}
		deleted = deleted[len(got):]
		slices.Sort(got)
		equal(t, "kinds", got, want)
	}
	equal(t, "rest", len(deleted), 0)
}

func TestRemove_PhaseIncomplete_Waits(t *testing.T) {
	b := setup(t)
	objs := chart(t, "1")
	b.apply(objs)
	held := objs[10]
	b.patch(held, `{"metadata":{"finalizers":["keb.test/hold"]}}`)
	for range 2 {
		left, err := b.operand.Remove(t.Context(), objs, nil)
		require.NoError(t, err)
		want := operand.NotReady{Ref: operand.RefOf(held), Reason: "is being deleted and waits for keb.test/hold"}
		equal(t, "first of what is left", left[0], want)
		// Everything but the two webhook configurations, which also belong to the first phase.
		equal(t, "left", len(left), len(objs)-2)
	}
	b.patch(held, `{"metadata":{"finalizers":null}}`)
	b.remove(objs)
	equal(t, "objects", b.names(), []string{})
}

func TestRemove_CustomResourcesExist_ReturnsInUseError(t *testing.T) {
	b := setup(t)
	objs := chart(t, "1")
	b.apply(objs)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		b.make(thing(t, "Gadget", name))
	}
	before := b.versions()
	left, err := b.operand.Remove(t.Context(), objs, nil)
	inUse, ok := errors.AsType[*operand.InUseError](err)
	if !ok {
		t.Fatalf("not refused: %v", err)
	}
	equal(t, "message", inUse.Error(), "CustomResourceDefinition gadgets.keb.test is not deleted: Gadget kyma-system/a, "+
		"Gadget kyma-system/b, Gadget kyma-system/c, Gadget kyma-system/d, Gadget kyma-system/e and 2 more would go with it")
	equal(t, "left", len(left), len(objs))
	equal(t, "resource versions", b.versions(), before)

	// The caller may keep the definition and its custom resources.
	if left, err := b.operand.Remove(t.Context(), objs, func(r operand.Ref) bool { return r.Kind == "CustomResourceDefinition" }); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if !b.exists(thing(t, "Gadget", "a")) {
		t.Error("the custom resource is gone")
	}
}

// A custom resource that is created during the removal is not lost either.
func TestRemove_NewCustomResource_KeepsDefinition(t *testing.T) {
	b := setup(t)
	objs := chart(t, "1")
	b.apply(objs)
	b.make(thing(t, "Gadget", "probe"))
	require.NoError(t, b.client.Delete(t.Context(), thing(t, "Gadget", "probe")))
	c := interceptor.NewClient(b.client, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if o.GetObjectKind().GroupVersionKind().Kind == "Secret" {
				b.make(thing(t, "Gadget", "late"))
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	left, err := operand.New(operand.Config{}, operand.Deps{Client: c}).Remove(t.Context(), objs, nil)
	if _, ok := errors.AsType[*operand.InUseError](err); !ok {
		t.Errorf("not refused: %v", err)
	}
	equal(t, "left", refs(left), []operand.Ref{operand.RefOf(objs[0])})
	if !b.exists(thing(t, "Gadget", "late")) {
		t.Error("the custom resource is gone")
	}
}

func TestRemove_DefinitionsMissing_Completes(t *testing.T) {
	b := setup(t)
	unknown := object(t, "1", "{apiVersion: no.such.group/v1, kind: Thing, metadata: {name: x}}")
	b.remove(append(chart(t, "1"), unknown))
	equal(t, "objects", b.names(), []string{})
}

func TestRemove_UndeletableObject_IsNamedAndRetried(t *testing.T) {
	b := setup(t)
	objs := chart(t, "1")
	b.apply(objs)
	refused := errors.New("refused")
	c := interceptor.NewClient(b.client, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if o.GetName() == "hooks" {
				return refused
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	left, err := operand.New(operand.Config{}, operand.Deps{Client: c}).Remove(t.Context(), objs, nil)
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "Service kyma-system/hooks") {
		t.Errorf("the error does not name the object and the cause: %v", err)
	}
	equal(t, "left", refs(left), []operand.Ref{operand.RefOf(objs[9]), operand.RefOf(objs[3]), operand.RefOf(objs[0])})
	b.remove(objs)
	equal(t, "objects", b.names(), []string{})
}

func TestRemove_ListFails_RemovesNothing(t *testing.T) {
	b := setup(t)
	objs := chart(t, "1")
	b.apply(objs)
	before := b.versions()
	forbidden := errors.New("forbidden")
	c := interceptor.NewClient(b.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if l.GetObjectKind().GroupVersionKind().Kind == "ClusterRoleList" {
				return forbidden
			}
			return c.List(ctx, l, opts...)
		},
	})
	if _, err := operand.New(operand.Config{}, operand.Deps{Client: c}).Remove(t.Context(), objs, nil); !errors.Is(err, forbidden) {
		t.Errorf("the cause is missing: %v", err)
	}
	equal(t, "resource versions", b.versions(), before)
}

// The roles name cluster-scoped objects only. In a namespace a missing right is an error.
func TestRemove_ForbiddenRead_SkipsClusterScoped(t *testing.T) {
	for manifest, skipped := range map[string]bool{
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: unreadable}}": true,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: unreadable}}":                             false,
	} {
		b := setup(t)
		obj := object(t, "1", manifest)
		b.make(obj)
		forbidden := apierrors.NewForbidden(schema.GroupResource{}, obj.GetName(), errors.New("no right to read it"))
		c := interceptor.NewClient(b.client, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if key.Name == obj.GetName() {
					return forbidden
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		_, err := operand.New(operand.Config{}, operand.Deps{Client: c}).Remove(t.Context(), nil, nil)
		if errors.Is(err, forbidden) == skipped || (err == nil) != skipped {
			t.Errorf("%s: error %v, skipped %t", manifest, err, skipped)
		}
		if !b.exists(obj) {
			t.Errorf("%s is gone", manifest)
		}
	}
}

func TestRemoveWorkload_OtherObjects_AreKept(t *testing.T) {
	b := setup(t)
	objs := chart(t, "1")
	b.apply(objs)
	b.make(webhook(t, "1", "ValidatingWebhookConfiguration", "another"))
	for range 2 {
		require.NoError(t, b.operand.RemoveWorkload(t.Context()))
		for i, obj := range objs {
			if b.exists(obj) != (i < 10) {
				t.Errorf("%s exists: %t", operand.RefOf(obj), b.exists(obj))
			}
		}
	}
	if !b.exists(webhook(t, "1", "ValidatingWebhookConfiguration", "another")) {
		t.Error("another webhook configuration is gone")
	}
}

func TestRemoveWorkload_ForeignOperand_IsKept(t *testing.T) {
	b := setup(t)
	theirs := bare(chart(t, "1")[10])
	b.make(theirs)
	require.NoError(t, b.operand.RemoveWorkload(t.Context()))
	if !b.exists(theirs) {
		t.Error("it is gone")
	}
}

func TestRemoveWorkload_OneFails_RemovesOthers(t *testing.T) {
	b := setup(t)
	objs := chart(t, "1")
	b.apply(objs)
	refused := errors.New("refused")
	c := interceptor.NewClient(b.client, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if o.GetObjectKind().GroupVersionKind().Kind == "Deployment" {
				return refused
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	err := operand.New(operand.Config{}, operand.Deps{Client: c}).RemoveWorkload(t.Context())
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "Deployment kyma-system/sap-btp-operator-controller-manager") {
		t.Errorf("the error does not name the object and the cause: %v", err)
	}
	if b.exists(objs[11]) || b.exists(objs[12]) {
		t.Error("a webhook configuration is still there")
	}
}
