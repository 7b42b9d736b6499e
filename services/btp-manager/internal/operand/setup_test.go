package operand_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

const (
	// waitTimeout is the timeout for short operations on a busy machine.
	waitTimeout = 90 * time.Second
	namespace   = "kyma-system"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// bundle is a cluster without objects of an operand, and an operand.
type bundle struct {
	t       *testing.T
	cluster *kubetest.Cluster
	client  client.WithWatch
	operand *operand.Operand
}

func setup(t *testing.T) *bundle {
	t.Helper()
	log.SetLogger(logr.Discard())
	cluster := shared.Cluster(t)
	c, err := client.NewWithWatch(cluster.Config, client.Options{})
	require.NoError(t, err)
	b := &bundle{t: t, cluster: cluster, client: c, operand: operand.New(operand.Config{}, operand.Deps{Client: c})}
	for _, ns := range []string{namespace, "elsewhere"} {
		err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		if client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*waitTimeout)
		defer cancel()
		b.empty(ctx)
	})
	return b
}

// kinds are the kinds of the tests' objects.
func kinds() []schema.GroupVersionKind {
	return append(operand.Kinds(),
		schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"},
		schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
		schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"},
	)
}

// spare are the objects of a cluster without an operand.
func spare(obj *unstructured.Unstructured) bool {
	name := obj.GetName()
	return strings.HasPrefix(name, "system:") || strings.HasPrefix(name, "system-") || strings.Contains(name, "btpoperators.") ||
		strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "extension-apiserver") ||
		name == "cluster-admin" || name == "admin" || name == "edit" || name == "view" || obj.GetNamespace() == "kube-system" ||
		obj.GetNamespace() == "default" || obj.GetNamespace() == "kube-public"
}

// all reads all objects of the tests.
func (b *bundle) all(ctx context.Context) []unstructured.Unstructured { return b.of(ctx, kinds()) }

// of reads all objects of some kinds of the tests.
func (b *bundle) of(ctx context.Context, kinds []schema.GroupVersionKind) []unstructured.Unstructured {
	b.t.Helper()
	// Every cluster has many roles, and reading them takes long.
	made, err := labels.Parse("!kubernetes.io/bootstrapping")
	if err != nil {
		b.t.Fatal(err)
	}
	var out []unstructured.Unstructured
	for _, k := range kinds {
		l := new(unstructured.UnstructuredList)
		l.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
		if err := b.client.List(ctx, l, client.MatchingLabelsSelector{Selector: made}); err != nil {
			b.t.Fatal(err)
		}
		for _, item := range l.Items {
			if !spare(&item) {
				out = append(out, item)
			}
		}
	}
	return out
}

// empty deletes all objects of a test.
func (b *bundle) empty(ctx context.Context) {
	b.t.Helper()
	left := kinds()
	testkit.Eventually(b.t, waitTimeout, "an empty cluster", func() bool {
		items := b.of(ctx, left)
		left = nil
		for i := range items {
			item := &items[i]
			if k := item.GroupVersionKind(); !slices.Contains(left, k) {
				left = append(left, k)
			}
			if f := item.GetFinalizers(); len(f) > 0 && item.GetKind() != "CustomResourceDefinition" {
				item.SetFinalizers(nil)
				_ = b.client.Update(ctx, item)
			}
			if err := b.client.Delete(ctx, item); client.IgnoreNotFound(err) != nil {
				b.t.Fatal(err)
			}
		}
		return len(items) == 0
	})
}

// names lists the existing objects, without the inventory.
func (b *bundle) names() []string {
	b.t.Helper()
	out := []string{}
	for _, item := range b.all(b.t.Context()) {
		if ref := operand.RefOf(&item).String(); ref != "ConfigMap "+namespace+"/"+operand.InventoryName {
			out = append(out, ref)
		}
	}
	return out
}

func (b *bundle) apply(objs []*unstructured.Unstructured) operand.Applied {
	b.t.Helper()
	done, err := b.operand.Apply(b.t.Context(), objs)
	if err != nil {
		b.t.Fatal(err)
	}
	return done
}

func (b *bundle) get(obj *unstructured.Unstructured) *unstructured.Unstructured {
	b.t.Helper()
	live := new(unstructured.Unstructured)
	live.SetGroupVersionKind(obj.GroupVersionKind())
	if err := b.client.Get(b.t.Context(), client.ObjectKeyFromObject(obj), live); err != nil {
		b.t.Fatal(err)
	}
	return live
}

func (b *bundle) exists(obj *unstructured.Unstructured) bool {
	b.t.Helper()
	live := obj.DeepCopy()
	err := b.client.Get(b.t.Context(), client.ObjectKeyFromObject(obj), live)
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	return err == nil
}

// patch changes an object like `kubectl edit`.
func (b *bundle) patch(obj *unstructured.Unstructured, patch string, opts ...client.PatchOption) {
	b.t.Helper()
	kind := client.RawPatch("application/strategic-merge-patch+json", []byte(patch))
	if obj.GetKind() == "CustomResourceDefinition" || strings.HasPrefix(obj.GetAPIVersion(), "keb.test") {
		kind = client.RawPatch("application/merge-patch+json", []byte(patch))
	}
	opts = append([]client.PatchOption{client.FieldOwner("kubectl-edit")}, opts...)
	if err := b.client.Patch(b.t.Context(), obj.DeepCopy(), kind, opts...); err != nil {
		b.t.Fatal(err)
	}
}

// versions returns the resource versions of all objects. For a definition it returns the content instead, because the API server writes the
// status shortly after a change.
func (b *bundle) versions() map[string]string {
	b.t.Helper()
	out := map[string]string{}
	for _, item := range b.all(b.t.Context()) {
		version := item.GetResourceVersion()
		if item.GetKind() == "CustomResourceDefinition" {
			item.SetManagedFields(slices.DeleteFunc(item.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Subresource == "status" }))
			item.SetResourceVersion("")
			unstructured.RemoveNestedField(item.Object, "status")
			version = fmt.Sprint(item.Object)
		}
		out[operand.RefOf(&item).String()] = version
	}
	return out
}

// contents returns the existing objects without data of the cluster.
func (b *bundle) contents() map[string]any {
	b.t.Helper()
	out := map[string]any{}
	for _, item := range b.all(b.t.Context()) {
		for _, f := range [][]string{
			{"metadata", "uid"},
			{"metadata", "resourceVersion"},
			{"metadata", "creationTimestamp"},
			{"metadata", "managedFields"},
			{"metadata", "generation"},
			{"status"},
			{"spec", "clusterIP"},
			{"spec", "clusterIPs"},
		} {
			unstructured.RemoveNestedField(item.Object, f...)
		}
		out[operand.RefOf(&item).String()] = item.Object
	}
	return out
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// object returns an object of a chart: with the labels of version, by default in the chart's namespace.
func object(t *testing.T, version, text string) *unstructured.Unstructured {
	t.Helper()
	obj := new(unstructured.Unstructured)
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, obj))
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["app.kubernetes.io/managed-by"] = "btp-manager"
	labels["chart-version"] = version
	labels["kyma-project.io/module"] = "btp-operator"
	obj.SetLabels(labels)
	switch obj.GetKind() {
	case "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "MutatingWebhookConfiguration",
		"ValidatingWebhookConfiguration", "PriorityClass":
	default:
		if obj.GetNamespace() == "" {
			obj.SetNamespace(namespace)
		}
	}
	return obj
}

func configMap(t *testing.T, version, name, value string) *unstructured.Unstructured {
	return object(t, version, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {key: %q}}", name, value))
}

func secret(t *testing.T, version, name string) *unstructured.Unstructured {
	return object(t, version, fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %s}, data: {key: dmFsdWU=}}", name))
}

func clusterRole(t *testing.T, version, name string) *unstructured.Unstructured {
	return object(t, version, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %s}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]`, name))
}

func service(t *testing.T, version, name string) *unstructured.Unstructured {
	return object(t, version, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {ports: [{port: 443, targetPort: webhook-server}], selector: {app: operand}}`, name))
}

func deployment(t *testing.T, version, name, selector string) *unstructured.Unstructured {
	return object(t, version, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: 1
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %[2]s}, annotations: {sidecar: "false"}}
    spec:
      containers:
      - name: manager
        image: example.com/operand:1
        args: [--metrics]
        env: [{name: MODE, value: plain}]
        resources: {limits: {cpu: 1000m, memory: 1024Mi}, requests: {cpu: "0.1"}}
        ports: [{containerPort: 9443, name: webhook-server}]`, name, selector))
}

func webhook(t *testing.T, version, kind, name string) *unstructured.Unstructured {
	return object(t, version, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: %s
metadata: {name: %s}
webhooks:
- name: hook.keb.test
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {service: {name: hooks, namespace: kyma-system, path: /x}, caBundle: eA==}
  rules: [{apiGroups: [hooks.keb.test], apiVersions: [v1], operations: [CREATE], resources: [things]}]`, kind, name))
}

// definition defines a kind in the group keb.test.
func definition(t *testing.T, version, kind string) *unstructured.Unstructured {
	plural := strings.ToLower(kind) + "s"
	return object(t, version, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.keb.test}
spec:
  group: keb.test
  scope: Namespaced
  names: {kind: %s, listKind: %[2]sList, plural: %[1]s, singular: %[3]s}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}`,
		plural, kind, strings.ToLower(kind)))
}

func thing(t *testing.T, kind, name string) *unstructured.Unstructured {
	return object(t, "1", fmt.Sprintf("{apiVersion: keb.test/v1, kind: %s, metadata: {name: %s}, spec: {a: b}}", kind, name))
}

// chart returns one object of every kind in all charts of the operand.
func chart(t *testing.T, version string) []*unstructured.Unstructured {
	const rbac = "apiVersion: rbac.authorization.k8s.io/v1\n"
	return []*unstructured.Unstructured{
		definition(t, version, "Gadget"),
		object(t, version, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: operand}}"),
		configMap(t, version, "operand-config", "one"),
		secret(t, version, "operand-credentials"),
		object(t, version, rbac+"kind: Role\nmetadata: {name: operand}\nrules: [{apiGroups: [''], resources: [events], verbs: [create]}]"),
		object(t, version, rbac+"kind: RoleBinding\nmetadata: {name: operand}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operand}\n"+
			"subjects: [{kind: ServiceAccount, name: operand, namespace: kyma-system}]"),
		clusterRole(t, version, "operand"),
		object(t, version, rbac+"kind: ClusterRoleBinding\nmetadata: {name: operand}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: operand}\n"+
			"subjects: [{kind: ServiceAccount, name: operand, namespace: kyma-system}]"),
		object(t, version, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: operand}, spec: {podSelector: {matchLabels: {app: operand}}, policyTypes: [Egress], egress: [{ports: [{port: 443, protocol: TCP}]}]}}"),
		service(t, version, "hooks"),
		deployment(t, version, "sap-btp-operator-controller-manager", "operand"),
		webhook(t, version, "MutatingWebhookConfiguration", "sap-btp-operator-mutating-webhook-configuration"),
		webhook(t, version, "ValidatingWebhookConfiguration", "sap-btp-operator-validating-webhook-configuration"),
	}
}
