package deploy_test

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/config"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

func TestChart_Values_AreRendered(t *testing.T) {
	t.Parallel()
	const always = "ClusterRole btp-manager,ClusterRole kyma-btp-manager-edit,ClusterRole kyma-btp-manager-view,ClusterRoleBinding btp-manager," +
		"CustomResourceDefinition btpoperators.operator.kyma-project.io,"
	for name, want := range map[string]string{
		"defaults": always + "Deployment kyma-system/btp-manager,NetworkPolicy kyma-system/btp-manager,PodDisruptionBudget kyma-system/btp-manager," +
			"Role kyma-system/btp-manager,RoleBinding kyma-system/btp-manager,Service kyma-system/btp-manager-metrics,ServiceAccount kyma-system/btp-manager",
		"everything": "BtpOperator kyma-system/btpoperator," + always + "ConfigMap kyma-system/btp-manager-dashboard,ConfigMap kyma-system/settings," +
			"Deployment kyma-system/btp-manager,Namespace kyma-system,NetworkPolicy kyma-system/btp-manager,PodDisruptionBudget kyma-system/btp-manager," +
			"PriorityClass kyma-system,PrometheusRule kyma-system/btp-manager,Role kyma-system/btp-manager,RoleBinding kyma-system/btp-manager," +
			"Service kyma-system/btp-manager-metrics,ServiceAccount kyma-system/btp-manager,ServiceMonitor kyma-system/btp-manager",
		"small": always + "ConfigMap elsewhere/btp-manager-dashboard,ConfigMap elsewhere/sap-btp-manager,Deployment elsewhere/btp-manager," +
			"NetworkPolicy elsewhere/btp-manager,Role elsewhere/btp-manager,RoleBinding elsewhere/btp-manager,Service elsewhere/btp-manager-metrics," +
			"ServiceAccount elsewhere/btp-manager",
		"bare": always + "Deployment kyma-system/btp-manager,Role kyma-system/btp-manager,RoleBinding kyma-system/btp-manager," +
			"Service kyma-system/btp-manager-metrics,ServiceAccount kyma-system/btp-manager",
	} {
		var got []string
		for _, o := range rendered(t, valueSets()[name]) {
			got = append(got, describe(o))
		}
		slices.Sort(got)
		if diff := cmp.Diff(slices.Sorted(strings.SplitSeq(want, ",")), got); diff != "" {
			t.Errorf("%s: diff (-want +got)\n%s", name, diff)
		}
	}
}

func TestChart_Notes_WarnAboutDeletions(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]bool{
		"":                                 true,
		"settings: {BlockDeletion: false}": true,
		"settings: {BlockDeletion: true}":  false,
		"configMap: {create: true, settings: {BlockDeletion: true}}":                                   false,
		"configMap: {create: false, settings: {BlockDeletion: true}}":                                  true,
		"settings: {BlockDeletion: true}\nconfigMap: {create: true, settings: {BlockDeletion: false}}": true,
		"settings: {BlockDeletion: true}\nconfigMap: {create: true, settings: {ReadyTimeout: 2m}}":     false,
	} {
		files, err := kubetest.RenderChart(t, chartDir, values, kubetest.Release{Name: "release", Namespace: "default"})
		require.NoError(t, err)
		if notes := files["btp-manager/templates/NOTES.txt"]; strings.Contains(notes, "settings.BlockDeletion=true") != want {
			t.Errorf("%s: warning %t, want %t, in\n%s", values, !want, want, notes)
		}
	}
}

func TestChart_Selectors_MatchLabels(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := rendered(t, values)
			d := kubetest.One[*appsv1.Deployment](t, objects, "btp-manager")
			pods := d.Spec.Template
			check := func(what string, s *metav1.LabelSelector, labels map[string]string) {
				t.Helper()
				if !kubetest.Selects(t, s, labels) {
					t.Errorf("%s: the selector %v does not select %v", what, s, labels)
				}
			}
			check("Deployment", d.Spec.Selector, pods.Labels)
			for _, c := range pods.Spec.TopologySpreadConstraints {
				check("topology spread", c.LabelSelector, pods.Labels)
			}
			for _, p := range kubetest.All[*networkingv1.NetworkPolicy](objects) {
				check(describe(p), &p.Spec.PodSelector, pods.Labels)
			}
			for _, p := range kubetest.All[*policyv1.PodDisruptionBudget](objects) {
				check(describe(p), p.Spec.Selector, pods.Labels)
			}
			s := kubetest.One[*corev1.Service](t, objects, "btp-manager-metrics")
			check(describe(s), &metav1.LabelSelector{MatchLabels: s.Spec.Selector}, pods.Labels)
			for _, m := range kubetest.All[*serviceMonitor](objects) {
				check(describe(m), &m.Spec.Selector, s.Labels)
				if m.Spec.Endpoints[0].Port != s.Spec.Ports[0].Name || m.Spec.NamespaceSelector.MatchNames[0] != s.Namespace {
					t.Errorf("the ServiceMonitor looks at %+v, the Service is %s with the port %s", m.Spec, describe(s), s.Spec.Ports[0].Name)
				}
			}
			checkPorts(t, objects, pods.Spec.Containers[0])
			checkAccounts(t, objects, pods.Spec.ServiceAccountName)
		})
	}
}

func checkPorts(t *testing.T, objects []client.Object, c corev1.Container) {
	t.Helper()
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	if diff := cmp.Diff(map[string]int32{"metrics": 8080, "health": 8081}, ports); diff != "" {
		t.Errorf("ports: diff (-want +got)\n%s", diff)
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != "health" {
			t.Errorf("a probe asks %s at %s, want %s at health", probe.HTTPGet.Path, probe.HTTPGet.Port.String(), path)
		}
	}
	if to := kubetest.One[*corev1.Service](t, objects, "btp-manager-metrics").Spec.Ports[0].TargetPort.String(); to != "metrics" {
		t.Errorf("the Service leads to the port %s, want metrics", to)
	}
	for _, p := range kubetest.All[*networkingv1.NetworkPolicy](objects) {
		for _, in := range p.Spec.Ingress {
			if len(in.From) == 0 || in.Ports[0].Port.String() != "metrics" {
				t.Errorf("the policy lets %v in to %v, want named peers to metrics only", in.From, in.Ports)
			}
		}
	}
}

// YAML interprets some names as a number, a boolean or null.
func TestChart_NamesLikeYAMLTypes_AreQuoted(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"123", "1e3", "true", "null"} {
		objects := rendered(t, fmt.Sprintf(`
namespace: %q
prerequisites: {namespace: true}
priorityClassName: %[1]q
btpOperator: {create: true, name: %[1]q}
settings: {ConfigName: %[1]q}
configMap: {create: true}
serviceMonitor: {enabled: true}
`, name))
		d := kubetest.One[*appsv1.Deployment](t, objects, "btp-manager")
		if d.Namespace != name || d.Spec.Template.Spec.PriorityClassName != name {
			t.Errorf("the Deployment is in %q with the priority %q, both must be %q", d.Namespace, d.Spec.Template.Spec.PriorityClassName, name)
		}
		kubetest.One[*v1alpha1.BtpOperator](t, objects, name)
		kubetest.One[*corev1.ConfigMap](t, objects, name)
		kubetest.One[*corev1.Namespace](t, objects, name)
		checkAccounts(t, objects, d.Spec.Template.Spec.ServiceAccountName)
	}
}

// A scraper of the operand also scrapes the manager: Prometheus is rarely in the namespace of either.
func TestRoles_MetricsReader_ReadsManagerMetrics(t *testing.T) {
	t.Parallel()
	c, err := render.Load(operand.Chart())
	require.NoError(t, err)
	objects, err := c.Render(render.Release{Name: "x", Namespace: "kyma-system"}, nil)
	require.NoError(t, err)
	var want networkingv1.NetworkPolicy
	for _, o := range objects {
		if o.GetName() == "sap-btp-operator-allow-metrics" {
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &want))
		}
	}
	got := kubetest.One[*networkingv1.NetworkPolicy](t, rendered(t, ""), "btp-manager")
	if diff := cmp.Diff(want.Spec.Ingress[0].From, got.Spec.Ingress[0].From); diff != "" {
		t.Errorf("diff (-operand +manager)\n%s", diff)
	}
}

func checkAccounts(t *testing.T, objects []client.Object, account string) {
	t.Helper()
	in := kubetest.One[*corev1.ServiceAccount](t, objects, account).Namespace
	roles := map[string]bool{}
	for _, r := range kubetest.All[*rbacv1.ClusterRole](objects) {
		roles["ClusterRole "+r.Name] = true
	}
	for _, r := range kubetest.All[*rbacv1.Role](objects) {
		roles["Role "+r.Name] = true
	}
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: in, Name: account}}
	verify := func(o client.Object, to rbacv1.RoleRef, subjects []rbacv1.Subject) {
		t.Helper()
		if !roles[to.Kind+" "+to.Name] {
			t.Errorf("%s is for a %s %s, which does not exist", describe(o), to.Kind, to.Name)
		}
		if diff := cmp.Diff(want, subjects); diff != "" {
			t.Errorf("%s: diff (-want +got)\n%s", describe(o), diff)
		}
	}
	for _, b := range kubetest.All[*rbacv1.ClusterRoleBinding](objects) {
		verify(b, b.RoleRef, b.Subjects)
	}
	for _, b := range kubetest.All[*rbacv1.RoleBinding](objects) {
		verify(b, b.RoleRef, b.Subjects)
	}
}

func TestChart_Pod_IsRestricted(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets() {
		pod := kubetest.One[*appsv1.Deployment](t, rendered(t, values), "btp-manager").Spec.Template.Spec
		c := pod.Containers[0]
		yes, no, user := true, false, int64(65532)
		want := corev1.PodSecurityContext{
			RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		if diff := cmp.Diff(want, *pod.SecurityContext); diff != "" {
			t.Errorf("%s: pod: diff (-want +got)\n%s", name, diff)
		}
		if diff := cmp.Diff(corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}, *c.SecurityContext); diff != "" {
			t.Errorf("%s: container: diff (-want +got)\n%s", name, diff)
		}
		if len(pod.Containers)+len(pod.InitContainers) != 1 || len(pod.Volumes) > 0 || pod.HostNetwork || pod.HostPID || pod.HostIPC {
			t.Errorf("%s: the pod has more than one container, volumes, or something of its host", name)
		}
	}
}

func TestChart_Args_AreValidFlags(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]func(*config.Config){
		"defaults": func(*config.Config) {},
		"small":    func(c *config.Config) { c.ChartNamespace = "elsewhere" },
		"everything": func(c *config.Config) {
			c.HardDeleteTimeout *= 3
			c.HardDeleteTimeout /= 2
			c.BlockDeletion, c.EnableLimitedCache, c.ConfigName = true, false, "settings"
			c.OperandPullSecrets, c.OperandEgressPorts = "a,b", "443"
		},
	} {
		objects := rendered(t, valueSets()[name])
		got, expected := config.Default(), config.Default()
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		got.Flags(fs)
		format, level := fs.String("log-format", "", ""), fs.String("log-level", "", "")
		if err := fs.Parse(kubetest.One[*appsv1.Deployment](t, objects, "btp-manager").Spec.Template.Spec.Containers[0].Args); err != nil || fs.NArg() > 0 {
			t.Errorf("%s: %v, left over: %v", name, err, fs.Args())
		}
		expected.LeaderElect = true
		want(&expected)
		if diff := cmp.Diff(expected, got); diff != "" {
			t.Errorf("%s: diff (-want +got)\n%s", name, diff)
		}
		if err := got.Validate(); err != nil || *format == "" || *level == "" {
			t.Errorf("%s: %v, log format %q and level %q", name, err, *format, *level)
		}
		for _, m := range kubetest.All[*corev1.ConfigMap](objects) {
			if m.Name != got.ConfigName {
				continue
			}
			if _, err := got.With(m.Data); err != nil {
				t.Errorf("%s: the ConfigMap with %v is refused: %v", name, m.Data, err)
			}
		}
	}
}

func TestChart_ManagerLabels_DifferFromOperand(t *testing.T) {
	t.Parallel()
	for _, o := range rendered(t, everything) {
		if o.GetLabels()[render.ManagedByLabel] == render.ManagedBy {
			t.Errorf("%s has the label that a deprovisioning removes", describe(o))
		}
		if is, ok := o.(*appsv1.Deployment); ok && is.Spec.Template.Labels[render.ManagedByLabel] == render.ManagedBy {
			t.Error("the pods have the label that a deprovisioning removes")
		}
		if _, ok := o.(*apiextensionsv1.CustomResourceDefinition); !ok && o.GetLabels()["app.kubernetes.io/name"] != "btp-manager" {
			t.Errorf("%s has no label of its owner: %v", describe(o), o.GetLabels())
		}
	}
}

func TestChart_Uninstall_KeepsSharedObjects(t *testing.T) {
	t.Parallel()
	objects := rendered(t, everything)
	for _, o := range []client.Object{
		kubetest.One[*corev1.Namespace](t, objects, "kyma-system"),
		kubetest.One[*schedulingv1.PriorityClass](t, objects, "kyma-system"),
		kubetest.One[*v1alpha1.BtpOperator](t, objects, "btpoperator"),
		kubetest.One[*apiextensionsv1.CustomResourceDefinition](t, objects, "btpoperators.operator.kyma-project.io"),
	} {
		if o.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s is removed with the release", describe(o))
		}
	}
}

func TestChart_BtpOperator_IsHookWithoutDefinition(t *testing.T) {
	t.Parallel()
	// Helm deletes the object of a hook before it creates it again. If the kind exists, that may deprovision an operand.
	known := kubetest.One[*v1alpha1.BtpOperator](t, rendered(t, everything, "operator.kyma-project.io/v1alpha1/BtpOperator"), "btpoperator")
	if diff := cmp.Diff([]string{"helm.sh/resource-policy"}, slices.Sorted(maps.Keys(known.Annotations))); diff != "" {
		t.Errorf("kind known: diff (-want +got)\n%s", diff)
	}
	unknown := kubetest.One[*v1alpha1.BtpOperator](t, rendered(t, everything), "btpoperator")
	if diff := cmp.Diff(map[string]string{
		"helm.sh/resource-policy": "keep", "helm.sh/hook": "post-install,post-upgrade",
		"meta.helm.sh/release-name": "release", "meta.helm.sh/release-namespace": "default",
	}, unknown.Annotations); diff != "" {
		t.Errorf("kind not known: diff (-want +got)\n%s", diff)
	}
	if unknown.Labels[render.ManagedByLabel] != "Helm" {
		t.Errorf("Helm will not take an object over that is managed by %q", unknown.Labels[render.ManagedByLabel])
	}
}
