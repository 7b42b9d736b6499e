package render_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kyma-project/keb/services/btp-manager/internal/render"
)

// scheme contains the types of all objects in the chart.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
})

// strict decodes an object to the type of its kind, and rejects unknown fields.
func strict(t testing.TB, o *unstructured.Unstructured) runtime.Object {
	t.Helper()
	data, err := o.MarshalJSON()
	require.NoError(t, err)
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme(), scheme(), json.SerializerOptions{Strict: true})
	typed, _, err := decoder.Decode(data, nil, nil)
	require.NoErrorf(t, err, "%s %s", o.GetKind(), o.GetName())
	return typed
}

func TestOperand_Objects_MatchKubernetesTypes(t *testing.T) {
	for name, v := range sets() {
		t.Run(name, func(t *testing.T) {
			for _, o := range renderOperand(t, v) {
				strict(t, o)
			}
		})
	}
}

func TestRender_ObjectsAndPods_HaveLabels(t *testing.T) {
	want := map[string]string{
		"app.kubernetes.io/managed-by": "btp-manager", "kyma-project.io/module": "btp-operator", "chart-version": operandChart(t).Version(),
	}
	check := func(t *testing.T, what string, labels map[string]string) {
		t.Helper()
		for key, value := range want {
			if labels[key] != value {
				t.Errorf("%s has the label %s=%q, must be %q", what, key, labels[key], value)
			}
		}
	}
	for name, v := range sets() {
		t.Run(name, func(t *testing.T) {
			objs, pods := renderOperand(t, v), 0
			for _, o := range objs {
				check(t, o.GetKind()+" "+o.GetName(), o.GetLabels())
				if labels, ok, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels"); ok {
					check(t, "the pod of "+o.GetName(), labels)
					pods++
				}
			}
			if len(objs) < 15 || pods != 1 {
				t.Errorf("%d objects and %d pod templates", len(objs), pods)
			}
		})
	}
}

func TestRender_ChartLabels_AreOverridden(t *testing.T) {
	const metadata = "{name: x, labels: {app.kubernetes.io/managed-by: Helm, mine: yes-please}}"
	template := "{metadata: {labels: {chart-version: old, mine: yes-please}}}"
	for kind, text := range map[string]string{
		"Deployment": "apiVersion: apps/v1\nkind: Deployment\nmetadata: " + metadata + "\nspec: {template: " + template + "}",
		"DaemonSet":  "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: " + metadata + "\nspec: {template: " + template + "}",
		"Job":        "apiVersion: batch/v1\nkind: Job\nmetadata: " + metadata + "\nspec: {template: " + template + "}",
		"CronJob":    "apiVersion: batch/v1\nkind: CronJob\nmetadata: " + metadata + "\nspec: {jobTemplate: {spec: {template: " + template + "}}}",
	} {
		t.Run(kind, func(t *testing.T) {
			o := renderTiny(t, map[string]string{"templates/x.yaml": text})[0]
			path := []string{"spec", "template", "metadata", "labels"}
			if kind == "CronJob" {
				path = []string{"spec", "jobTemplate", "spec", "template", "metadata", "labels"}
			}
			pod, _, err := unstructured.NestedStringMap(o.Object, path...)
			require.NoError(t, err)
			for what, labels := range map[string]map[string]string{"object": o.GetLabels(), "pod": pod} {
				if labels[render.ManagedByLabel] != render.ManagedBy || labels[render.ChartVersionLabel] != "1.2.3" ||
					labels[render.ModuleLabel] != render.Module || labels["mine"] != "yes-please" {
					t.Errorf("the labels of the %s are %v", what, labels)
				}
			}
		})
	}
}

func TestRender_Objects_AreInOrder(t *testing.T) {
	group := map[string]int{
		"CustomResourceDefinition": 0,
		"ServiceAccount":           1, "ConfigMap": 1, "Secret": 1, "NetworkPolicy": 1,
		"Role": 2, "ClusterRole": 2, "RoleBinding": 2, "ClusterRoleBinding": 2,
		"Service": 3, "Deployment": 4,
		"MutatingWebhookConfiguration": 5, "ValidatingWebhookConfiguration": 5,
	}
	for name, v := range sets() {
		t.Run(name, func(t *testing.T) {
			last := 0
			for _, o := range renderOperand(t, v) {
				g, ok := group[o.GetKind()]
				if !ok || g < last {
					t.Errorf("%s %s comes too late, or is unknown to this test", o.GetKind(), o.GetName())
				}
				last = g
			}
		})
	}
}

func TestOperand_ClusterScoped_HaveNoNamespace(t *testing.T) {
	without := []string{"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
	for _, o := range renderOperand(t, usual()) {
		want := "kyma-system"
		if slices.Contains(without, o.GetKind()) {
			want = ""
		}
		if o.GetNamespace() != want {
			t.Errorf("%s %s is in the namespace %q, must be in %q", o.GetKind(), o.GetName(), o.GetNamespace(), want)
		}
	}
}

func TestRender_Objects_GetNamespaces(t *testing.T) {
	crd := func(scope string) string {
		return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: as.x.io}\n" +
			"spec: {group: x.io, scope: " + scope + ", names: {kind: A}}\n"
	}
	custom := "apiVersion: x.io/v1\nkind: A\nmetadata: {name: a}\n"
	for name, c := range map[string]struct {
		files map[string]string
		kind  string
		want  string
	}{
		"none given":              {map[string]string{"templates/a.yaml": configMap("y")}, "ConfigMap", "kyma-system"},
		"one given":               {map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: b}"}, "Secret", "b"},
		"cluster":                 {map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}"}, "Namespace", ""},
		"of a namespaced CRD":     {map[string]string{"crds/a.yaml": crd("Namespaced"), "templates/a.yaml": custom}, "A", "kyma-system"},
		"of a cluster CRD":        {map[string]string{"crds/a.yaml": crd("Cluster"), "templates/a.yaml": custom}, "A", ""},
		"of a CRD as a template":  {map[string]string{"templates/a.yaml": custom + "---\n" + crd("Namespaced")}, "A", "kyma-system"},
		"of no release namespace": {map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: b}"}, "Secret", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range renderTiny(t, c.files) {
				if o.GetKind() == c.kind && o.GetNamespace() != c.want {
					t.Errorf("the namespace is %q, must be %q", o.GetNamespace(), c.want)
				}
			}
		})
	}
}

func TestRender_InvalidObjects_AreRejected(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown kind":      {"apiVersion: x.io/v1\nkind: A\nmetadata: {name: a}", "A a: it is not known whether a A.x.io is namespaced"},
		"namespace of none": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: a, namespace: b}", "Namespace b/a: a Namespace is not namespaced"},
		"twice":             {configMap("y") + "---\n" + configMap("z"), "ConfigMap kyma-system/c is duplicated"},
		"no kind":           {"apiVersion: v1\nmetadata: {name: a}", "tiny/templates/a.yaml: document 1: an object needs apiVersion, kind and metadata"},
		"no metadata":       {"apiVersion: v1\nkind: Secret\ndata: {a: c2VjcmV0}", "an object needs apiVersion, kind and metadata"},
		"no name":           {configMap("y") + "---\napiVersion: v1\nkind: Secret\nmetadata: {}", "document 2: the Secret has no name"},
		"a list":            {"apiVersion: v1\nkind: List\nmetadata: {}\nitems: []", "it is a List"},
		"a scalar":          {"text", "document 1: not a Kubernetes object"},
		"a sequence":        {"- a\n- b", "not a Kubernetes object"},
		"no YAML":           {"a: [b", "document 1: invalid YAML"},
		"a key twice":       {"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nkind: Secret", `key "kind" already set`},
		"labels of no text": {"apiVersion: v1\nkind: Secret\nmetadata: {name: a, labels: {a: 1}}", "Secret kyma-system/a: labels"},
		"missing value":     {"{{ .Values.missing }}", "missing"},
		"failure":           {`{{ fail "not like this" }}`, "not like this"},
	} {
		t.Run(name, func(t *testing.T) {
			chart, err := render.Load(tiny(map[string]string{"templates/a.yaml": c.text}))
			require.NoError(t, err)
			_, err = chart.Render(release(), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, must have %q", err, c.want)
			}
		})
	}
	chart, err := render.Load(tiny(map[string]string{"templates/a.yaml": configMap("y")}))
	require.NoError(t, err)
	if _, err := chart.Render(render.Release{Name: "x"}, nil); err == nil || !strings.Contains(err.Error(), "names a namespace") {
		t.Errorf("a release without a namespace gives %v", err)
	}
}

func TestRender_HooksAndNotes_AreOmitted(t *testing.T) {
	hook := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, annotations: {helm.sh/hook: pre-delete}}\n"
	objs := renderTiny(t, map[string]string{
		"templates/a.yaml":    "# nothing\n---\n" + hook + "---\n" + configMap("y") + "---\n",
		"templates/NOTES.txt": "Thank you for {{ .Release.Name }}: not YAML", "templates/_x.tpl": "{{ define \"x\" }}y{{ end }}",
		"templates/empty.yaml": "{{ if false }}a: b{{ end }}", "README.md": "# A chart", "templates/tests/t.yaml": strings.Replace(hook, "pre-delete", "test", 1),
	})
	if len(objs) != 1 || objs[0].GetKind() != "ConfigMap" {
		t.Errorf("the objects are %v", objs)
	}
}

func TestRender_Templates_GetReleaseAndChart(t *testing.T) {
	objs := renderTiny(t, map[string]string{"templates/a.yaml": configMap(
		"{{ .Release.Name }} {{ .Release.Namespace }} {{ .Chart.Name }} {{ .Chart.Version }} {{ .Files.Get \"f.txt\" }} {{ .Template.Name }}"), "f.txt": "file"})
	got, _, _ := unstructured.NestedString(objs[0].Object, "data", "x")
	if want := "btpoperator kyma-system tiny 1.2.3 file tiny/templates/a.yaml"; got != want {
		t.Errorf("they see %q, must see %q", got, want)
	}
}

func renderTiny(t testing.TB, files map[string]string) []*unstructured.Unstructured {
	t.Helper()
	c, err := render.Load(tiny(files))
	require.NoError(t, err)
	objs, err := c.Render(release(), nil)
	require.NoError(t, err)
	return objs
}
