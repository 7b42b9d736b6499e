package operand_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
)

func TestApply_UnrelatedFields_AreKept(t *testing.T) {
	b := setup(t)
	obj := deployment(t, "1", "operand", "operand")
	objs := []*unstructured.Unstructured{obj}
	const restarted = `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-11-21T10:00:00Z"}}}}}`
	for _, c := range []struct {
		name, manager, patch string
		status               bool
	}{
		{name: "a finalizer", manager: "somebody", patch: `{"metadata":{"finalizers":["keb.test/hold"]}}`},
		{name: "a rollout restart", manager: "kubectl-rollout", patch: restarted},
		{name: "a rollout restart from a dashboard", manager: "dashboard", patch: restarted},
		{name: "a revision", manager: "kube-controller-manager", patch: `{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"3"}}}`},
		{name: "a revision where one process is all of Kubernetes", manager: "k3s", patch: `{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"4"}}}`},
		{name: "a status", manager: "somebody", patch: `{"status":{"replicas":1}}`, status: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := *b
			b.t = t
			b.empty(t.Context())
			b.apply(objs)
			before := b.get(obj)
			if c.status {
				require.NoError(t, b.client.Status().Patch(t.Context(), obj.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(c.patch))))
			} else {
				b.patch(obj, c.patch, client.FieldOwner(c.manager))
			}
			want := b.get(obj)
			if before.GetResourceVersion() == want.GetResourceVersion() {
				t.Fatal("the patch changed nothing")
			}
			equal(t, "applied", b.apply(objs), operand.Applied{})
			equal(t, "object", b.get(obj), want)
		})
	}
}

// A restart annotation is kept although other changes are reverted.
func TestApply_RolloutRestart_IsKept(t *testing.T) {
	b := setup(t)
	obj := deployment(t, "1", "operand", "operand")
	unstructured.RemoveNestedField(obj.Object, "spec", "template", "metadata", "annotations")
	objs := []*unstructured.Unstructured{obj}
	b.apply(objs)
	b.patch(obj, `{"spec":{"paused":true,"template":{"metadata":{"annotations":{"a":"b","kubectl.kubernetes.io/restartedAt":"now"}}}}}`)
	b.apply(objs)
	live := b.get(obj)
	annotations, _, _ := unstructured.NestedStringMap(live.Object, "spec", "template", "metadata", "annotations")
	equal(t, "annotations", annotations, map[string]string{"kubectl.kubernetes.io/restartedAt": "now"})
	if paused, _, _ := unstructured.NestedBool(live.Object, "spec", "paused"); paused {
		t.Error("the rollout is still paused")
	}
	equal(t, "applied again", b.apply(objs), operand.Applied{})
	equal(t, "object", b.get(obj), live)
}

func TestApply_ExistingObject_IsTakenOver(t *testing.T) {
	b := setup(t)
	objs := chart(t, "1")
	b.apply(objs)
	want := b.contents()
	b.empty(t.Context())
	for _, obj := range chart(t, "0") {
		obj.SetLabels(map[string]string{"old": "label"})
		obj.SetAnnotations(map[string]string{"old": "annotation"})
		require.NoError(t, b.client.Create(t.Context(), obj, client.FieldOwner("helm")))
	}
	for _, c := range b.apply(objs).Changed {
		equal(t, "how", c.How, operand.Altered)
	}
	equal(t, "objects", b.contents(), want)
	before := b.versions()
	equal(t, "applied again", b.apply(objs), operand.Applied{})
	equal(t, "resource versions", b.versions(), before)
}

func TestApply_FieldOfOtherAPIVersion_IsRemoved(t *testing.T) {
	b := setup(t)
	obj := object(t, "1", `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: operand}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: operand}}`)
	objs := []*unstructured.Unstructured{obj}
	b.apply(objs)
	want := b.contents()
	old := obj.DeepCopy()
	old.SetAPIVersion("autoscaling/v1")
	b.patch(old, `{"metadata":{"labels":{"a":"b"}},"spec":{"minReplicas":2}}`)
	b.apply(objs)
	equal(t, "objects", b.contents(), want)
	equal(t, "applied again", b.apply(objs), operand.Applied{})
}

func TestApply_ConcurrentChange_IsReverted(t *testing.T) {
	b := setup(t)
	obj := configMap(t, "1", "config", "one")
	objs := []*unstructured.Unstructured{obj}
	b.apply(objs)
	want := b.contents()
	b.patch(obj, `{"data":{"first":"x"}}`)
	meddled := 0
	meddling := interceptor.NewClient(b.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if meddled < 2 {
				meddled++
				b.patch(obj, fmt.Sprintf(`{"data":{"meddled":"%d"}}`, meddled))
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	if _, err := operand.New(operand.Config{}, operand.Deps{Client: meddling}).Apply(t.Context(), objs); err != nil {
		t.Fatal(err)
	}
	equal(t, "times", meddled, 2)
	equal(t, "objects", b.contents(), want)
}

// replacements are changes that the API server rejects, by kind.
func TestApply_ImmutableField_ReplacesObject(t *testing.T) {
	b := setup(t)
	const rbac = "apiVersion: rbac.authorization.k8s.io/v1\n"
	binding := func(kind, role string) *unstructured.Unstructured {
		return object(t, "1", rbac+"kind: "+kind+"\nmetadata: {name: operand}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "+role+"}\n")
	}
	headless := service(t, "1", "hooks")
	_ = unstructured.SetNestedField(headless.Object, "None", "spec", "clusterIP")
	fixed := func(value string) *unstructured.Unstructured {
		obj := configMap(t, "1", "config", value)
		obj.Object["immutable"] = true
		return obj
	}
	typed := func(kind string) *unstructured.Unstructured {
		obj := secret(t, "1", "credentials")
		obj.Object["type"] = kind
		return obj
	}
	job := func(image string) *unstructured.Unstructured {
		return object(t, "1", "{apiVersion: batch/v1, kind: Job, metadata: {name: job}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: "+image+"}]}}}}")
	}
	set := func(svc string) *unstructured.Unstructured {
		return object(t, "1", "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: set}, spec: {serviceName: "+svc+
			", selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: x}]}}}}")
	}
	priority := func(value int) *unstructured.Unstructured {
		return object(t, "1", fmt.Sprintf("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: operand}, value: %d}", value))
	}
	wide := definition(t, "1", "Gadget")
	_ = unstructured.SetNestedField(wide.Object, "Cluster", "spec", "scope")

	for _, c := range []struct {
		name     string
		old, new *unstructured.Unstructured
	}{
		{"selector of a Deployment", deployment(t, "1", "operand", "one"), deployment(t, "1", "operand", "two")},
		{"address of a Service", service(t, "1", "hooks"), headless},
		{"role of a RoleBinding", binding("RoleBinding", "one"), binding("RoleBinding", "two")},
		{"role of a ClusterRoleBinding", binding("ClusterRoleBinding", "one"), binding("ClusterRoleBinding", "two")},
		{"type of a Secret", typed("Opaque"), typed("keb.test/other")},
		{"data of a fixed ConfigMap", fixed("one"), fixed("two")},
		{"template of a Job", job("one"), job("two")},
		{"service of a StatefulSet", set("one"), set("two")},
		{"value of a PriorityClass", priority(1), priority(2)},
		{"scope of a definition", definition(t, "1", "Gadget"), wide},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := *b
			b.t = t
			b.empty(t.Context())
			objs := []*unstructured.Unstructured{c.new}
			b.apply([]*unstructured.Unstructured{c.old})
			old := b.get(c.old)
			var how operand.How
			testkit.Eventually(t, waitTimeout, "the replacement", func() bool {
				done := b.apply(objs)
				if len(done.Changed) == 1 {
					how = done.Changed[0].How
				}
				return len(done.Held) == 0
			})
			if how != operand.Recreated && c.new.GetKind() != "CustomResourceDefinition" {
				t.Errorf("it was %s, want recreated", how)
			}
			if b.get(c.new).GetUID() == old.GetUID() {
				t.Error("it is still the same object")
			}
			equal(t, "applied again", b.apply(objs), operand.Applied{})
		})
	}
}

func TestApply_MutableChange_KeepsObject(t *testing.T) {
	b := setup(t)
	invalid := deployment(t, "1", "operand", "two")
	_ = unstructured.SetNestedField(invalid.Object, "no such policy", "spec", "template", "spec", "restartPolicy")
	wide := definition(t, "1", "Gadget")
	_ = unstructured.SetNestedField(wide.Object, "Cluster", "spec", "scope")
	for _, c := range []struct {
		name        string
		old, new    *unstructured.Unstructured
		before      func(*bundle)
		wantInUse   bool
		wantInvalid bool
	}{
		{
			name: "by one that the API server would not take", old: deployment(t, "1", "operand", "one"), new: invalid, wantInvalid: true,
		},
		{
			name: "that does not carry our label", old: deployment(t, "1", "operand", "one"), new: deployment(t, "1", "operand", "two"),
			before: func(b *bundle) {
				b.patch(deployment(b.t, "1", "operand", "one"), `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`)
			},
			wantInvalid: true,
		},
		{
			name: "that defines custom resources", old: definition(t, "1", "Gadget"), new: wide,
			before:    func(b *bundle) { b.make(thing(b.t, "Gadget", "mine")) },
			wantInUse: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := *b
			b.t = t
			b.empty(t.Context())
			b.apply([]*unstructured.Unstructured{c.old})
			if c.before != nil {
				c.before(&b)
			}
			uid := b.get(c.old).GetUID()
			_, err := b.operand.Apply(t.Context(), []*unstructured.Unstructured{c.new})
			if _, ok := errors.AsType[*operand.InUseError](err); ok != c.wantInUse {
				t.Errorf("in use is %t: %v", ok, err)
			}
			if apierrors.IsInvalid(err) != c.wantInvalid {
				t.Errorf("not about an invalid object: %v", err)
			}
			equal(t, "uid", b.get(c.old).GetUID(), uid)
		})
	}
}

// make creates an object of a new kind.
func (b *bundle) make(obj *unstructured.Unstructured) {
	b.t.Helper()
	testkit.Eventually(b.t, waitTimeout, "the kind of "+obj.GetName(), func() bool { return b.client.Create(b.t.Context(), obj.DeepCopy()) == nil })
}
