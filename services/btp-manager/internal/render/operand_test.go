package render_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/services/btp-manager/chart"

	"github.com/kyma-project/keb/services/btp-manager/internal/render"
)

// typed returns the objects of one type, by name, or by namespace and name if several namespaces have one.
func typed[T metav1.Object](t testing.TB, objs []*unstructured.Unstructured) map[string]T {
	t.Helper()
	found := map[string]T{}
	for _, o := range objs {
		if obj, ok := strict(t, o).(T); ok {
			found[strings.TrimPrefix(obj.GetNamespace()+"/"+obj.GetName(), "kyma-system/")] = obj
		}
	}
	if len(found) == 0 {
		t.Fatalf("there is no %T", *new(T))
	}
	return found
}

const deploymentName = "sap-btp-operator-controller-manager"

func deployment(t testing.TB, objs []*unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	return typed[*appsv1.Deployment](t, objs)[deploymentName]
}

// YAML interprets some names as a number, a boolean or null.
func TestChart_NamesLikeYAMLTypes_AreQuoted(t *testing.T) {
	for _, name := range []string{"123", "0x10", "1e3", "true", "off", "null"} {
		t.Run(name, func(t *testing.T) {
			objs := renderOperand(t, values{"manager": values{
				"management_namespace": name, "allow_cluster_access": false, "allowed_namespaces": []any{name + "-apps", "0" + name},
				"priorityClassName": name, "customCACerts": values{"configMap": name},
			}})
			secret := find(t, objs, "Secret", "sap-btp-service-operator")
			if got := secret.GetNamespace(); got != name {
				t.Errorf("the credentials are in %q, must be in %q", got, name)
			}
			bound := typed[*rbacv1.RoleBinding](t, objs)
			for _, namespace := range []string{name, name + "-apps", "0" + name} {
				if bound[namespace+"/sap-btp-operator-manager-rolebinding"] == nil {
					t.Errorf("the operand has no rights in %s", namespace)
				}
			}
			pod := deployment(t, objs).Spec.Template.Spec
			if got := pod.Volumes[1].ConfigMap.Name; pod.PriorityClassName != name || got != name {
				t.Errorf("the priority is %q and the ConfigMap %q, both must be %q", pod.PriorityClassName, got, name)
			}
		})
	}
	objs, err := operand(t).Render(render.Release{Name: "operand", Namespace: "123"})
	require.NoError(t, err)
	for name, binding := range typed[*rbacv1.ClusterRoleBinding](t, objs) {
		if got := binding.Subjects[0].Namespace; got != "123" {
			t.Errorf("%s gives the rights to an account in %q", name, got)
		}
	}
}

func TestOperand_Selectors_MatchPods(t *testing.T) {
	for name, v := range sets() {
		t.Run(name, func(t *testing.T) {
			objs := renderOperand(t, v)
			d := deployment(t, objs)
			pod := labels.Set(d.Spec.Template.Labels)
			meets := func(what string, selector *metav1.LabelSelector) {
				s, err := metav1.LabelSelectorAsSelector(selector)
				if err != nil || s.Empty() || !s.Matches(pod) {
					t.Errorf("%s selects %v, the pod has %v", what, selector, pod)
				}
			}
			meets("the Deployment", d.Spec.Selector)
			ports := map[string]int32{}
			for _, p := range d.Spec.Template.Spec.Containers[0].Ports {
				ports[p.Name] = p.ContainerPort
			}
			services := typed[*corev1.Service](t, objs)
			for _, s := range services {
				meets("the Service "+s.Name, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
				for _, p := range s.Spec.Ports {
					if p.TargetPort.Type != intstr.String || ports[p.TargetPort.StrVal] == 0 {
						t.Errorf("the Service %s goes to the port %v, the pod has %v", s.Name, p.TargetPort, ports)
					}
				}
			}
			for _, p := range typed[*networkingv1.NetworkPolicy](t, objs) {
				meets("the NetworkPolicy "+p.Name, &p.Spec.PodSelector)
			}
			for _, c := range clients(t, objs) {
				s := services[c.Service.Name]
				if c.Service.Namespace != "kyma-system" || s == nil || s.Spec.Ports[0].Port != *c.Service.Port || ports[s.Spec.Ports[0].TargetPort.StrVal] != 9443 {
					t.Errorf("a webhook goes to %v", c.Service)
				}
			}
		})
	}
}

// clients returns the API server's configuration for calling the webhooks.
func clients(t testing.TB, objs []*unstructured.Unstructured) []admissionv1.WebhookClientConfig {
	t.Helper()
	var found []admissionv1.WebhookClientConfig
	for _, c := range typed[*admissionv1.MutatingWebhookConfiguration](t, objs) {
		for _, w := range c.Webhooks {
			found = append(found, w.ClientConfig)
		}
	}
	for _, c := range typed[*admissionv1.ValidatingWebhookConfiguration](t, objs) {
		for _, w := range c.Webhooks {
			found = append(found, w.ClientConfig)
		}
	}
	return found
}

// The names in the schema are those with a default, and no object accepts others.
func TestOperand_Schema_DescribesValues(t *testing.T) {
	var schema, defaults map[string]any
	for name, into := range map[string]*map[string]any{"values.schema.json": &schema, "values.yaml": &defaults} {
		data, err := fs.ReadFile(chart.FS(), name)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(data, into))
		if name == "values.schema.json" && !json.Valid(data) {
			t.Error("the schema is no JSON")
		}
		// The library does not report the position of an error in a property's name.
		if strings.Contains(string(data), "propertyNames") {
			t.Errorf("%s has propertyNames", name)
		}
	}
	var compare func(path string, schema, defaults map[string]any)
	compare = func(path string, schema, defaults map[string]any) {
		properties, ok := schema["properties"].(map[string]any)
		if !ok || path == ".manager.secret.extra" {
			return
		}
		if schema["additionalProperties"] != false {
			t.Errorf("%s takes any name", path)
		}
		var required []string
		for _, r := range schema["required"].([]any) {
			required = append(required, r.(string))
		}
		slices.Sort(required)
		known, set := slices.Sorted(maps.Keys(properties)), slices.Sorted(maps.Keys(defaults))
		if !slices.Equal(known, set) || !slices.Equal(known, required) {
			t.Errorf("%s: the schema has %v, needs %v, and values.yaml sets %v", path, known, required, set)
		}
		for name, p := range properties {
			sub, _ := defaults[name].(map[string]any)
			compare(path+"."+name, p.(map[string]any), sub)
		}
	}
	compare("", schema, defaults)
}
