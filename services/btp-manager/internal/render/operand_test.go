package render_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

	"github.com/kyma-project/keb/services/btp-manager/internal/operand"

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

func TestOperand_Credentials_AreInSecret(t *testing.T) {
	objs := renderOperand(t, usual())
	secret := typed[*corev1.Secret](t, objs)["sap-btp-service-operator"]
	want := map[string][]byte{
		"clientid": []byte("sb-client!b1|service-manager!b2"), "clientsecret": []byte("s3cr3t: \"quoted\"\n"), "sm_url": []byte("https://sm.example.com"),
		"tokenurl": []byte("https://token.example.com"), "tokenurlsuffix": []byte("/oauth/token"),
	}
	if diff := cmp.Diff(want, secret.Data); diff != "" {
		t.Errorf("the Secret (-want +got):\n%s", diff)
	}
	config := typed[*corev1.ConfigMap](t, objs)["sap-btp-operator-config"]
	wantConfig := map[string]string{
		"CLUSTER_ID": "9f2e4b1c-cluster", "MANAGEMENT_NAMESPACE": "kyma-system", "RELEASE_NAMESPACE": "kyma-system",
		"ALLOW_CLUSTER_ACCESS": "true", "ENABLE_LIMITED_CACHE": "true",
	}
	if diff := cmp.Diff(wantConfig, config.Data); diff != "" {
		t.Errorf("the ConfigMap (-want +got):\n%s", diff)
	}
	env := deployment(t, objs).Spec.Template.Spec.Containers[0].EnvFrom
	if len(env) != 1 || env[0].ConfigMapRef == nil || env[0].ConfigMapRef.Name != config.Name {
		t.Errorf("the operand's environment is %v", env)
	}
}

func TestOperand_CredentialsNamespace_MovesSecret(t *testing.T) {
	objs := renderOperand(t, values{"manager": values{"management_namespace": "elsewhere"}})
	if _, ok := typed[*corev1.Secret](t, objs)["elsewhere/sap-btp-service-operator"]; !ok {
		t.Error("the Secret is not there")
	}
	config := typed[*corev1.ConfigMap](t, objs)["sap-btp-operator-config"]
	if config == nil || config.Data["RELEASE_NAMESPACE"] != "elsewhere" || config.Data["MANAGEMENT_NAMESPACE"] != "elsewhere" {
		t.Errorf("the ConfigMap is %v", config)
	}
	if d := deployment(t, objs); d == nil || d.Namespace != "kyma-system" {
		t.Error("the Deployment moved too")
	}
}

// YAML interprets some names as a number, a boolean or null.
func TestChart_NamesLikeYAMLTypes_AreQuoted(t *testing.T) {
	for _, name := range []string{"123", "0x10", "1e3", "true", "off", "null"} {
		t.Run(name, func(t *testing.T) {
			objs := renderOperand(t, values{"manager": values{"management_namespace": name, "imagePullSecrets": []any{values{"name": name}}}})
			secret := find(t, objs, "Secret", "sap-btp-service-operator")
			if got := secret.GetNamespace(); got != name {
				t.Errorf("the credentials are in %q, must be in %q", got, name)
			}
			if got := deployment(t, objs).Spec.Template.Spec.ImagePullSecrets[0].Name; got != name {
				t.Errorf("the pull secret is %q, must be %q", got, name)
			}
		})
	}
	objs, err := operandChart(t).Render(render.Release{Name: "operand", Namespace: "123"}, nil)
	require.NoError(t, err)
	for name, binding := range typed[*rbacv1.ClusterRoleBinding](t, objs) {
		if got := binding.Subjects[0].Namespace; got != "123" {
			t.Errorf("%s gives the rights to an account in %q", name, got)
		}
	}
}

func TestOperand_ExtraCredentials_AreInSecret(t *testing.T) {
	got := typed[*corev1.Secret](t, renderOperand(t, tuned()))["sap-btp-service-operator"]
	want := map[string]string{
		"clientid": "client", "clientsecret": "", "sm_url": "https://sm", "tokenurl": "https://t", "tokenurlsuffix": "/token",
		"tls.crt": "crt", "tls.key": "key", "region": "eu10", "a.b-c": "",
	}
	data := map[string]string{}
	for key, value := range got.Data {
		data[key] = string(value)
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Errorf("the Secret (-want +got):\n%s", diff)
	}
}

func TestOperand_NewCredentials_RestartsPods(t *testing.T) {
	checksum := func(v values) string {
		return deployment(t, renderOperand(t, v)).Spec.Template.Annotations["checksum/config"]
	}
	before := checksum(usual())
	if len(before) != 64 {
		t.Fatalf("the checksum is %q", before)
	}
	for name, change := range map[string]func(values){
		"cluster":   func(v values) { v["cluster"].(values)["id"] = "other" },
		"client":    func(v values) { v["manager"].(values)["secret"].(values)["clientid"] = "other" },
		"secret":    func(v values) { v["manager"].(values)["secret"].(values)["clientsecret"] = "other" },
		"token url": func(v values) { v["manager"].(values)["secret"].(values)["tokenurl"] = "other" },
		"extra":     func(v values) { v["manager"].(values)["secret"].(values)["extra"] = values{"a": "YQ=="} },
		"namespace": func(v values) { v["manager"].(values)["management_namespace"] = "other" },
		"cache":     func(v values) { v["manager"].(values)["enable_limited_cache"] = false },
	} {
		v := usual()
		change(v)
		if checksum(v) == before {
			t.Errorf("%s: the pod stays", name)
		}
	}
	v := usual()
	v["manager"].(values)["certificates"] = values{"caBundle": ""}
	v["networkPolicies"] = values{"enabled": false}
	if checksum(v) != before {
		t.Error("something that the operand does not read restarts it")
	}
}

func TestOperand_Image_IsSet(t *testing.T) {
	digest := strings.Repeat("0", 64)
	for want, image := range map[string]values{
		"r/i:v1":                      {"repository": "r/i", "tag": "v1"},
		"r/i:v1@sha256:" + digest:     {"repository": "r/i", "tag": "v1", "sha": digest},
		"host:5/i@sha256:" + digest:   {"repository": "host:5/i", "tag": "", "sha": digest},
		"ghcr.io/sap/operand:v0.11.9": {"repository": "ghcr.io/sap/operand", "tag": "v0.11.9"},
	} {
		got := deployment(t, renderOperand(t, values{"manager": values{"image": image}})).Spec.Template.Spec.Containers
		if len(got) != 1 || got[0].Image != want {
			t.Errorf("the image is %q, must be %q, in one container", got[0].Image, want)
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
			if name != "moved" { // these values disable the policies
				for _, p := range typed[*networkingv1.NetworkPolicy](t, objs) {
					meets("the NetworkPolicy "+p.Name, &p.Spec.PodSelector)
				}
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

func TestOperand_CABundle_IsSet(t *testing.T) {
	for want, v := range map[string]values{bundle: usual(), bundle + bundle: tuned(), "": nil} {
		got := clients(t, renderOperand(t, v))
		if len(got) != 4 {
			t.Errorf("there are %d webhooks", len(got))
		}
		for _, c := range got {
			if string(c.CABundle) != want {
				t.Errorf("a webhook trusts %q, must trust %q", c.CABundle, want)
			}
		}
	}
}

func TestOperand_Webhooks_HaveRules(t *testing.T) {
	objs := renderOperand(t, usual())
	got := map[string][]admissionv1.OperationType{}
	add := func(path *string, policy *admissionv1.FailurePolicyType, rules []admissionv1.RuleWithOperations) {
		if *policy != admissionv1.Fail || len(rules) != 1 || !slices.Equal(rules[0].APIGroups, []string{"services.cloud.sap.com"}) ||
			!strings.HasSuffix(*path, strings.TrimSuffix(rules[0].Resources[0], "s")) {
			t.Errorf("the webhook at %s has the policy %s and the rules %v", *path, *policy, rules)
		}
		got[*path] = rules[0].Operations
	}
	for _, w := range typed[*admissionv1.MutatingWebhookConfiguration](t, objs)["/sap-btp-operator-mutating-webhook-configuration"].Webhooks {
		add(w.ClientConfig.Service.Path, w.FailurePolicy, w.Rules)
	}
	for _, w := range typed[*admissionv1.ValidatingWebhookConfiguration](t, objs)["/sap-btp-operator-validating-webhook-configuration"].Webhooks {
		add(w.ClientConfig.Service.Path, w.FailurePolicy, w.Rules)
	}
	change := []admissionv1.OperationType{"CREATE", "UPDATE"}
	want := map[string][]admissionv1.OperationType{
		"/mutate-services-cloud-sap-com-v1-servicebinding":    change,
		"/mutate-services-cloud-sap-com-v1-serviceinstance":   change,
		"/validate-services-cloud-sap-com-v1-servicebinding":  change,
		"/validate-services-cloud-sap-com-v1-serviceinstance": append(slices.Clone(change), "DELETE"), // preventDeletion
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the webhooks (-want +got):\n%s", diff)
	}
}

func TestOperand_Roles_AreBoundWithoutWildcards(t *testing.T) {
	for name, v := range sets() {
		t.Run(name, func(t *testing.T) {
			objs := renderOperand(t, v)
			roles := map[string]rbacv1.RoleRef{}
			check := func(kind, name string, rules []rbacv1.PolicyRule) {
				roles[kind+name] = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
				for _, r := range rules {
					all := slices.Concat(r.APIGroups, r.Resources, r.Verbs, r.NonResourceURLs)
					if slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, "*") }) {
						t.Errorf("the %s %s allows %v", kind, name, r)
					}
				}
			}
			for _, r := range typed[*rbacv1.ClusterRole](t, objs) {
				check("ClusterRole", r.Name, r.Rules)
			}
			for _, r := range typed[*rbacv1.Role](t, objs) {
				check("Role", r.Name, r.Rules)
			}
			account := typed[*corev1.ServiceAccount](t, objs)[deployment(t, objs).Spec.Template.Spec.ServiceAccountName]
			if account == nil {
				t.Fatal("the operand's ServiceAccount is missing")
			}
			bound := func(name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
				if roles[ref.Kind+ref.Name] != ref {
					t.Errorf("%s binds %v, which is not there", name, ref)
				}
				want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}
				if diff := cmp.Diff(want, subjects); diff != "" {
					t.Errorf("%s binds others (-want +got):\n%s", name, diff)
				}
			}
			for _, b := range typed[*rbacv1.RoleBinding](t, objs) {
				bound(b.Name, b.RoleRef, b.Subjects)
			}
			for _, b := range typed[*rbacv1.ClusterRoleBinding](t, objs) {
				bound(b.Name, b.RoleRef, b.Subjects)
			}
		})
	}
}

func TestNetworkPolicies_Traffic_IsLimited(t *testing.T) {
	policies := typed[*networkingv1.NetworkPolicy](t, renderOperand(t, usual()))
	open := map[string][]string{}
	for _, p := range policies {
		for _, rule := range p.Spec.Egress {
			for _, port := range rule.Ports {
				open[p.Name] = append(open[p.Name], "to "+string(*port.Protocol)+" "+port.Port.String())
			}
		}
		for _, rule := range p.Spec.Ingress {
			for _, port := range rule.Ports {
				from := "all"
				if len(rule.From) == 1 {
					from = labels.Set(rule.From[0].PodSelector.MatchLabels).String()
				}
				open[p.Name] = append(open[p.Name], "at "+string(*port.Protocol)+" "+port.Port.String()+" from "+from)
			}
		}
	}
	want := map[string][]string{
		"sap-btp-operator-allow-to-https": {"to TCP 443", "to TCP 6443"},
		"sap-btp-operator-allow-to-dns":   {"to UDP 53", "to TCP 53", "to UDP 8053", "to TCP 8053"},
		"sap-btp-operator-allow-metrics":  {"at TCP 8080 from networking.kyma-project.io/metrics-scraping=allowed"},
		"sap-btp-operator-allow-webhook":  {"at TCP 9443 from all"},
	}
	if diff := cmp.Diff(want, open); diff != "" {
		t.Errorf("what is open (-want +got):\n%s", diff)
	}
	for _, o := range renderOperand(t, moved()) {
		if o.GetKind() == "NetworkPolicy" {
			t.Errorf("%s is there though policies are switched off", o.GetName())
		}
	}
}

func TestOperand_Chart_HasNoKeysAndNoProxy(t *testing.T) {
	for name, v := range sets() {
		objs := renderOperand(t, v)
		for _, o := range objs {
			if o.GetKind() == "Secret" && o.GetName() != "sap-btp-service-operator" {
				t.Errorf("%s: the Secret %s is BTP Manager's to make", name, o.GetName())
			}
		}
		spec := deployment(t, objs).Spec.Template.Spec
		if len(spec.Containers) != 1 || spec.Containers[0].Name != "manager" {
			t.Errorf("%s: the containers are %v", name, spec.Containers)
		}
		if spec.Volumes[0].Secret == nil || spec.Volumes[0].Secret.SecretName != "webhook-server-cert" ||
			spec.Containers[0].VolumeMounts[0].Name != spec.Volumes[0].Name {
			t.Errorf("%s: the serving certificate is not mounted: %v", name, spec.Volumes)
		}
	}
}

// The names in the schema are those with a default, and no object accepts others.
func TestOperand_Schema_DescribesValues(t *testing.T) {
	var schema, defaults map[string]any
	for name, into := range map[string]*map[string]any{"values.schema.json": &schema, "values.yaml": &defaults} {
		data, err := fs.ReadFile(operand.Chart(), name)
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
