package operand_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
)

func TestApply_SecondCall_WritesNothing(t *testing.T) {
	b := setup(t)
	objs := chart(t, "1")
	done := b.apply(objs)
	if len(done.Changed) != len(objs) {
		t.Errorf("%d objects changed, want all %d", len(done.Changed), len(objs))
	}
	for i, c := range done.Changed {
		equal(t, "changed", c, operand.Change{Ref: operand.RefOf(objs[i]), How: operand.Created})
	}
	before := b.versions()
	if len(before) != len(objs)+1 {
		t.Errorf("there are %d objects, want the chart's %d and the inventory", len(before), len(objs))
	}
	equal(t, "second apply", b.apply(objs), operand.Applied{})
	equal(t, "resource versions", b.versions(), before)
}

// changes are possible changes by other clients.
func TestApply_ChangedObject_IsCorrected(t *testing.T) {
	b := setup(t)
	objs := chart(t, "1")
	b.apply(objs)
	pick := func(kind string) *unstructured.Unstructured {
		for _, obj := range objs {
			if obj.GetKind() == kind {
				return obj
			}
		}
		t.Fatalf("no %s in the chart", kind)
		return nil
	}
	foreign := func(patch string) func(*unstructured.Unstructured) {
		return func(obj *unstructured.Unstructured) { b.patch(obj, patch) }
	}
	applied := func(data string) func(*unstructured.Unstructured) {
		return func(obj *unstructured.Unstructured) {
			o := object(t, "1", fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: %s}", obj.GetName(), data))
			o.SetLabels(nil)
			require.NoError(t, b.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.ForceOwnership, client.FieldOwner("argo")))
		}
	}
	const podSpec = `{"spec":{"template":{"spec":%s}}}`
	for _, c := range []struct {
		name, kind string
		change     func(*unstructured.Unstructured)
	}{
		{"a value", "ConfigMap", foreign(`{"data":{"key":"other"}}`)},
		{"a data key added", "ConfigMap", foreign(`{"data":{"more":"x"}}`)},
		{"a data key removed", "ConfigMap", foreign(`{"data":{"key":null}}`)},
		{"a data key added by another applier", "ConfigMap", applied(`{more: x}`)},
		{"a value taken over by another applier", "ConfigMap", applied(`{key: other}`)},
		{"a label added", "ConfigMap", foreign(`{"metadata":{"labels":{"team":"x"}}}`)},
		{"a label changed", "Secret", foreign(`{"metadata":{"labels":{"chart-version":"9"}}}`)},
		{"the managed-by label removed", "Secret", foreign(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`)},
		{"an annotation added", "ServiceAccount", foreign(`{"metadata":{"annotations":{"a":"b"}}}`)},
		{"an owner added", "Role", foreign(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}]}}`)},
		{"secret data added", "Secret", foreign(`{"data":{"more":"eA=="}}`)},
		{"an image", "Deployment", foreign(fmt.Sprintf(podSpec, `{"containers":[{"name":"manager","image":"example.com/none:0"}]}`))},
		{"an env var added", "Deployment", foreign(fmt.Sprintf(podSpec, `{"containers":[{"name":"manager","env":[{"name":"X","value":"y"}]}]}`))},
		{"arguments", "Deployment", foreign(fmt.Sprintf(podSpec, `{"containers":[{"name":"manager","args":["--other"]}]}`))},
		{"a command added", "Deployment", foreign(fmt.Sprintf(podSpec, `{"containers":[{"name":"manager","command":["sh"]}]}`))},
		{"a container added", "Deployment", foreign(fmt.Sprintf(podSpec, `{"containers":[{"name":"side","image":"example.com/side:1"}]}`))},
		{"a limit", "Deployment", foreign(fmt.Sprintf(podSpec, `{"containers":[{"name":"manager","resources":{"limits":{"cpu":"2"}}}]}`))},
		{"a default", "Deployment", foreign(fmt.Sprintf(podSpec, `{"terminationGracePeriodSeconds":5}`))},
		{"a pod annotation added", "Deployment", foreign(`{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`)},
		{"replicas", "Deployment", foreign(`{"spec":{"replicas":0}}`)},
		{"a paused rollout", "Deployment", func(obj *unstructured.Unstructured) {
			b.patch(obj, `{"spec":{"paused":true}}`, client.FieldOwner("kubectl-rollout"))
		}},
		{"a port added", "Service", foreign(`{"spec":{"ports":[{"name":"a","port":443},{"name":"b","port":444}]}}`)},
		{"a rule added", "ClusterRole", foreign(`{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`)},
		{"a subject added", "ClusterRoleBinding", foreign(`{"subjects":[{"kind":"ServiceAccount","name":"x","namespace":"y"}]}`)},
		{"an egress rule", "NetworkPolicy", foreign(`{"spec":{"egress":[{}]}}`)},
		{"a caBundle", "ValidatingWebhookConfiguration", foreign(`{"webhooks":[{"name":"hook.keb.test","clientConfig":{"caBundle":"eQ=="}}]}`)},
		{"a webhook removed", "MutatingWebhookConfiguration", foreign(`{"webhooks":[{"$patch":"delete","name":"hook.keb.test"}]}`)},
		{"a namespace selector added", "MutatingWebhookConfiguration", foreign(`{"webhooks":[{"name":"hook.keb.test","namespaceSelector":{"matchLabels":{"a":"b"}}}]}`)},
		{"a short name added", "CustomResourceDefinition", foreign(`{"spec":{"names":{"shortNames":["gg"]}}}`)},
	} {
		t.Run(c.kind+" "+c.name, func(t *testing.T) {
			b := *b
			b.t = t
			obj, want := pick(c.kind), b.contents()
			c.change(obj)
			if strings.Contains(fmt.Sprint(b.contents()), fmt.Sprint(want)) {
				t.Fatal("the change changed nothing")
			}
			done := b.apply(objs)
			equal(t, "applied", done, operand.Applied{Changed: []operand.Change{{Ref: operand.RefOf(obj), How: operand.Altered}}})
			equal(t, "objects", b.contents(), want)
			before := b.versions()
			equal(t, "applied again", b.apply(objs), operand.Applied{})
			equal(t, "resource versions", b.versions(), before)
		})
	}
}

func TestApply_NewKind_WaitsUntilServed(t *testing.T) {
	b := setup(t)
	gadget, mine := definition(t, "1", "Gadget"), thing(t, "Gadget", "mine")
	objs := []*unstructured.Unstructured{gadget, mine}
	sawHeld := false
	testkit.Eventually(t, waitTimeout, "the custom resource", func() bool {
		done := b.apply(objs)
		sawHeld = sawHeld || len(done.Held) > 0
		return len(done.Held) == 0
	})
	if !sawHeld {
		t.Log("the kind was served at once")
	}
	if !b.exists(mine) {
		t.Error("the custom resource is not there")
	}
	equal(t, "applied again", b.apply(objs), operand.Applied{})
}

func TestApply_ObjectWithoutLabel_IsRejected(t *testing.T) {
	b := setup(t)
	unlabelled, nameless := configMap(t, "1", "unlabelled", "x"), configMap(t, "1", "", "x")
	unlabelled.SetLabels(nil)
	twice := configMap(t, "1", "twice", "x")
	_, err := b.operand.Apply(t.Context(), []*unstructured.Unstructured{unlabelled, nameless, twice, twice})
	for _, want := range []string{"ConfigMap kyma-system/unlabelled has no label", "no apiVersion, kind or name", "ConfigMap kyma-system/twice is duplicated"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q: %v", want, err)
		}
	}
	equal(t, "objects", b.names(), []string{})
}
