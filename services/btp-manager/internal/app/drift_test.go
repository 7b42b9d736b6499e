package app_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
)

// edits are possible changes of an object of each kind of the chart.
var edits = map[string]string{
	"ClusterRole":                    `{"rules":[]}`,
	"ClusterRoleBinding":             `{"subjects":[{"kind":"Group","name":"everybody","apiGroup":"rbac.authorization.k8s.io"}]}`,
	"ConfigMap":                      `{"data":{"ENABLE_LIMITED_CACHE":"perhaps","MORE":"text"}}`,
	"CustomResourceDefinition":       `{"spec":{"names":{"categories":["another"]}}}`,
	"Deployment":                     `{"spec":{"replicas":0,"template":{"spec":{"hostNetwork":true,"priorityClassName":""}}}}`,
	"MutatingWebhookConfiguration":   `{"webhooks":[]}`,
	"NetworkPolicy":                  `{"spec":{"podSelector":{"matchLabels":{"no":"pod"}}}}`,
	"Role":                           `{"rules":[]}`,
	"RoleBinding":                    `{"subjects":[]}`,
	"Secret":                         `{"data":{"clientid":"b3RoZXI=","more":"dGV4dA=="}}`,
	"Service":                        `{"spec":{"selector":{"no":"pod"},"sessionAffinity":"ClientIP"}}`,
	"ServiceAccount":                 `{"automountServiceAccountToken":false}`,
	"ValidatingWebhookConfiguration": `{"webhooks":[]}`,
}

// ofTheChart omits the additional objects of BTP Manager.
func ofTheChart(all map[string]*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(name string, _ *unstructured.Unstructured) bool {
		return slices.Contains([]string{
			"ConfigMap kyma-system/" + operand.InventoryName, "Secret kyma-system/ca-server-cert", "Secret kyma-system/webhook-server-cert",
		}, name)
	})
	return out
}

// contents returns the content of an object, without the API server's data.
func contents(o *unstructured.Unstructured) map[string]any {
	c := o.DeepCopy()
	delete(c.Object, "status")
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
		unstructured.RemoveNestedField(c.Object, "metadata", field)
	}
	// The API server assigns an address to a Service.
	for _, field := range []string{"clusterIP", "clusterIPs"} {
		unstructured.RemoveNestedField(c.Object, "spec", field)
	}
	return c.Object
}

// restored waits until all objects have their original content.
func (s *system) restored(want map[string]*unstructured.Unstructured) {
	s.t.Helper()
	var differs string
	defer func() {
		if s.t.Failed() {
			s.t.Logf("not restored: %s", differs)
		}
	}()
	testkit.Eventually(s.t, waitTimeout, "all objects are what they were", func() bool {
		for name, o := range want {
			differs = name
			got := o.DeepCopy()
			if !s.exists(got) || got.GetDeletionTimestamp() != nil || !equality.Semantic.DeepEqual(contents(o), contents(got)) {
				return false
			}
		}
		return true
	})
}

// The intervals are long: only watches can detect the change.
func TestDrift_ChangedObject_IsCorrected(t *testing.T) {
	s := newSystem(t)
	s.settings.ReadyStateRequeueInterval, s.settings.ProcessingStateRequeueInterval = time.Hour, time.Hour
	s.create(secret("more", "of the same"))
	seen := s.observe()
	s.start()
	o := s.operator("btpoperator")
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	seen.settle(t)
	before := ofTheChart(s.made())
	if len(before) < 15 {
		t.Fatalf("only %d objects", len(before))
	}

	// Change one object at a time: the event of another one would hide a missing watch of this kind.
	first := map[string]*unstructured.Unstructured{}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if kind := before[name].GetKind(); first[kind] == nil {
			first[kind] = before[name]
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(first)) {
		t.Run("a "+kind+" is watched", func(t *testing.T) {
			s := s.in(t)
			seen.settle(t)
			corrected := s.metric("drift_corrections_total", "kind", kind)
			s.patch(first[kind].DeepCopy(), `{"metadata":{"labels":{"example.com/foreign":"yes"}}}`)
			s.restored(map[string]*unstructured.Unstructured{title(first[kind]): first[kind]})
			s.awaitMetric(corrected+1, "drift_corrections_total", "kind", kind)
		})
	}

	for _, tt := range []struct {
		name string
		do   func(s *system, o *unstructured.Unstructured)
	}{
		{"a foreign label", func(s *system, o *unstructured.Unstructured) {
			s.patch(o, `{"metadata":{"labels":{"example.com/foreign":"yes"}}}`)
		}},
		{"a foreign annotation", func(s *system, o *unstructured.Unstructured) { s.annotate(o, "example.com/foreign", "yes") }},
		{"a label of ours with another value", func(s *system, o *unstructured.Unstructured) {
			s.patch(o, `{"metadata":{"labels":{"chart-version":"another","kyma-project.io/module":null}}}`)
		}},
		{"a label of ours taken away", func(s *system, o *unstructured.Unstructured) {
			s.patch(o, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`)
		}},
		{"another field", func(s *system, o *unstructured.Unstructured) {
			edit, ok := edits[o.GetKind()]
			if !ok {
				s.t.Fatalf("no edit of a %s", o.GetKind())
			}
			s.patch(o, edit)
		}},
		{"a deletion", func(s *system, o *unstructured.Unstructured) { s.delete(o) }},
	} {
		t.Run(tt.name+" on every object", func(t *testing.T) {
			s := s.in(t)
			for _, o := range before {
				tt.do(s, o.DeepCopy())
			}
			s.restored(before)
			s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
		})
	}
	s.awaitEvent(o, "Normal", "DriftCorrected")
}
