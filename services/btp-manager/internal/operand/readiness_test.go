package operand

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := new(unstructured.Unstructured)
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(raw, obj)
	}
	require.NoError(t, err)
	return obj
}

func TestUnready_EachKind_IsChecked(t *testing.T) {
	const (
		apps      = "apiVersion: apps/v1\nkind: Deployment\n"
		available = "{type: Available, status: 'True', reason: MinimumReplicasAvailable, message: m}"
		rolledOut = "{type: Progressing, status: 'True', reason: NewReplicaSetAvailable, message: m}"
		counts    = "replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1, observedGeneration: 2"
		spec      = "metadata: {name: x, generation: 2}\nspec: {replicas: 1, progressDeadlineSeconds: 600}\n"
		rbac      = "apiVersion: rbac.authorization.k8s.io/v1\nmetadata: {name: x}\nkind: "
		admission = "apiVersion: admissionregistration.k8s.io/v1\nmetadata: {name: x}\nkind: "
		crd       = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\n"
	)
	for _, c := range []struct {
		name, text string
		// want is a part of the reason; empty means ready.
		want string
	}{
		{"ConfigMap", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}", ""},
		{"Secret", "{apiVersion: v1, kind: Secret, metadata: {name: x}}", ""},
		{"ServiceAccount", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: x}}", ""},
		{"Service", "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: ClusterIP, clusterIP: 10.0.0.1}}", ""},
		{"Service without an address of its load balancer", "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: LoadBalancer}}", "IP"},
		{"NetworkPolicy", "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: x}}", ""},
		{"PriorityClass", "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: x}}", ""},
		{"Role", rbac + "Role", ""},
		{"RoleBinding", rbac + "RoleBinding", ""},
		{"ClusterRole", rbac + "ClusterRole", ""},
		{"ClusterRoleBinding", rbac + "ClusterRoleBinding", ""},

		{"Deployment", apps + spec + "status: {" + counts + ", conditions: [" + available + ", " + rolledOut + "]}", ""},
		{"Deployment of an older generation", apps + spec + "status: {" + strings.Replace(counts, "observedGeneration: 2", "observedGeneration: 1", 1) +
			", conditions: [" + available + ", " + rolledOut + "]}", "generation"},
		{"Deployment without a status", apps + spec, "has no condition Available; has no condition Progressing"},
		{"Deployment without Available", apps + spec + "status: {" + counts + ", conditions: [" + rolledOut + "]}", "has no condition Available"},
		{"Deployment without Progressing", apps + spec + "status: {" + counts + ", conditions: [" + available + "]}", "has no condition Progressing"},
		{"Deployment that never tells about progress", apps + "metadata: {name: x, generation: 2}\nspec: {replicas: 1}\nstatus: {" + counts +
			", conditions: [" + available + "]}", "has no condition Progressing"},
		{"Deployment that is not available", apps + spec + "status: {" + counts + ", conditions: [{type: Available, status: 'False', reason: MinimumReplicasUnavailable, message: no minimum}, " +
			rolledOut + "]}", "Available is False: MinimumReplicasUnavailable: no minimum"},
		{"Deployment that is stuck", apps + spec + "status: {" + counts + ", conditions: [" + available +
			", {type: Progressing, status: 'False', reason: ProgressDeadlineExceeded, message: has timed out}]}", "Progressing is False: ProgressDeadlineExceeded: has timed out"},
		{"Deployment in the middle of a rollout", apps + spec + "status: {replicas: 2, updatedReplicas: 1, readyReplicas: 2, availableReplicas: 2, observedGeneration: 2, conditions: [" +
			available + ", {type: Progressing, status: 'True', reason: ReplicaSetUpdated, message: m}]}", "Pending termination: 1"},
		{
			"Deployment whose pods are refused", apps + spec + "status: {observedGeneration: 2, conditions: [{type: ReplicaFailure, status: 'True', reason: FailedCreate, message: exceeded quota}]}",
			"ReplicaFailure is True: FailedCreate: exceeded quota",
		},

		{"StatefulSet", "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {replicas: 1}, status: {replicas: 1, readyReplicas: 1, currentReplicas: 1}}", ""},
		{"StatefulSet without pods", "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {replicas: 1}}", "Replicas: 0/1"},
		{"Job that runs", "{apiVersion: batch/v1, kind: Job, metadata: {name: x}}", "Job"},
		{"Job that failed", "{apiVersion: batch/v1, kind: Job, metadata: {name: x}, status: {startTime: '2026-11-21T10:00:00Z', conditions: [{type: Failed, status: 'True', reason: R, message: m}]}}", "Job Failed"},
		{"PodDisruptionBudget", "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: x}}", ""},
		{"PersistentVolumeClaim", "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, status: {phase: Pending}}", "PVC is not Bound"},

		{"definition", crd + "status: {conditions: [{type: NamesAccepted, status: 'True'}, {type: Established, status: 'True'}]}", ""},
		{"definition that is not established", crd + "status: {conditions: [{type: Established, status: 'False', reason: Installing}]}", "Install in progress"},
		{"definition without a status", crd, "Install in progress"},
		{"definition whose former names were taken", crd + "spec: {names: {plural: xs}}\nstatus: {acceptedNames: {plural: xs}, conditions: [" +
			"{type: NamesAccepted, status: 'False', reason: ShortNamesConflict, message: already in use}, {type: Established, status: 'True'}]}", ""},
		{"definition of which a name is taken", crd + "spec: {names: {plural: xs, shortNames: [x]}}\nstatus: {acceptedNames: {plural: xs}, conditions: [" +
			"{type: NamesAccepted, status: 'False', reason: ShortNamesConflict, message: already in use}, {type: Established, status: 'True'}]}", "already in use"},
		{"definition whose names are taken", crd + "status: {conditions: [{type: NamesAccepted, status: 'False', reason: PluralConflict, message: already in use}]}", "already in use"},

		{"webhooks", admission + "MutatingWebhookConfiguration\nwebhooks: [{name: a, clientConfig: {caBundle: eA==}}]", ""},
		{"no webhooks", admission + "MutatingWebhookConfiguration", ""},
		{
			"mutating webhook without a caBundle", admission + "MutatingWebhookConfiguration\nwebhooks: [{name: a, clientConfig: {caBundle: eA==}}, {name: b, clientConfig: {service: {name: s}}}]",
			"webhook b has no caBundle",
		},
		{
			"validating webhook with an empty caBundle", admission + "ValidatingWebhookConfiguration\nwebhooks: [{name: a, clientConfig: {caBundle: ''}}]",
			"webhook a has no caBundle",
		},

		{"custom resource", "{apiVersion: x.test/v1, kind: X, metadata: {name: x}, status: {conditions: [{type: Ready, status: 'True'}]}}", ""},
		{"custom resource that is not ready", "{apiVersion: x.test/v1, kind: X, metadata: {name: x}, status: {conditions: [{type: Ready, status: 'False', reason: R, message: still busy}]}}", "still busy"},

		{"object that is being deleted", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, deletionTimestamp: '2026-11-21T10:00:00Z'}}", "is being deleted"},
		{
			"object that waits for a finalizer", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, deletionTimestamp: '2026-11-21T10:00:00Z', finalizers: [a, b]}}",
			"is being deleted and waits for a, b",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := unready(parse(t, c.text))
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("unready returns %q, want %q", got, c.want)
			}
		})
	}
}

func TestUnready_MissingAndError_ReportsBoth(t *testing.T) {
	ready := parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: ready, namespace: kyma-system}}")
	missing := parse(t, "{apiVersion: v1, kind: Secret, metadata: {name: missing, namespace: kyma-system}}")
	broken := parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: broken, namespace: kyma-system}}")
	waiting := parse(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: waiting, namespace: kyma-system}}")
	refused := errors.New("refused")
	c := fake.NewClientBuilder().WithObjects(ready, waiting).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if key.Name == "broken" {
				return refused
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	got, err := New(Config{}, Deps{Client: c}).Unready(t.Context(), []*unstructured.Unstructured{ready, broken, missing, waiting})
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "ConfigMap kyma-system/broken") {
		t.Errorf("the error does not name the object and the cause: %v", err)
	}
	var text []string
	for _, n := range got {
		text = append(text, n.String())
	}
	want := []string{
		"Secret kyma-system/missing: does not exist",
		"Deployment kyma-system/waiting: Replicas: 0/1; has no condition Available; has no condition Progressing",
	}
	if d := cmp.Diff(want, text); d != "" {
		t.Errorf("not ready (-want +got):\n%s", d)
	}
}

func TestApply_ImmutableAndInvalid_KeepsObject(t *testing.T) {
	for message, want := range map[string]bool{
		"field is immutable":                         true,
		"cannot change roleRef":                      true,
		"may not change once set":                    true,
		"Required value":                             false,
		"must be no more than 63 characters":         false,
		"may not be used when `matchLabels` is set":  false,
		"a lowercase RFC 1123 label must consist of": false,
	} {
		if got := isImmutableMessage(message); got != want {
			t.Errorf("%q: %t, want %t", message, got, want)
		}
	}
}
