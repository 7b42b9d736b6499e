package charts_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

func TestCharts_Lint_IsClean(t *testing.T) {
	t.Parallel()
	check := func(name, dir, values string) {
		var given map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(values), &given))
		for _, m := range lint.AllWithKubeVersion(dir, given, namespace, nil).Messages {
			// An icon is for catalogs of charts.
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
	// Lint looks at the chart more than at the values: other tests render those.
	check("keb", kebDir, everything)
	check("step-worker", workerDir, team+teamTLS)
	check("step-worker of keb worker init", workerDir, readFile(t, initFolder+"common/values.yaml"))
}

func TestSelectors_Pods_Match(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		objects := rendered(t, values)
		pods := workloads(objects)
		counts := map[string]int{}
		count := func(what client.Object, selector *metav1.LabelSelector) int {
			n := 0
			for _, w := range pods {
				if kubetest.Selects(t, selector, w.pod.Labels) {
					n++
				}
			}
			counts[describe(what)] = n
			return n
		}
		for _, w := range pods {
			if w.selector != nil && (!kubetest.Selects(t, w.selector, w.pod.Labels) || count(w.object, w.selector) != 1) {
				t.Errorf("%s: %s selects %d kinds of pods, want its own only", name, describe(w.object), counts[describe(w.object)])
			}
			for _, c := range w.pod.Spec.TopologySpreadConstraints {
				if !kubetest.Selects(t, c.LabelSelector, w.pod.Labels) {
					t.Errorf("%s: %s spreads other pods", name, describe(w.object))
				}
			}
		}
		for _, s := range kubetest.All[*corev1.Service](objects) {
			if n := count(s, &metav1.LabelSelector{MatchLabels: s.Spec.Selector}); n != 1 {
				t.Errorf("%s: %s selects %d kinds of pods, want one", name, describe(s), n)
			}
			for _, w := range pods {
				if !kubetest.Selects(t, &metav1.LabelSelector{MatchLabels: s.Spec.Selector}, w.pod.Labels) {
					continue
				}
				for _, p := range s.Spec.Ports {
					if !slices.ContainsFunc(w.pod.Spec.Containers[0].Ports, func(c corev1.ContainerPort) bool {
						return c.Name == p.TargetPort.StrVal && c.ContainerPort == p.Port
					}) {
						t.Errorf("%s: %s leads to a port %s that %s does not have", name, describe(s), p.TargetPort.String(), describe(w.object))
					}
				}
			}
		}
		for _, b := range kubetest.All[*policyv1.PodDisruptionBudget](objects) {
			if n := count(b, b.Spec.Selector); n != 1 {
				t.Errorf("%s: %s is for %d kinds of pods, want one", name, describe(b), n)
			}
		}
		for _, m := range kubetest.All[*podMonitor](objects) {
			if count(m, &m.Spec.Selector) < 3 || m.Spec.PodMetricsEndpoints[0].Port != "metrics" {
				t.Errorf("%s: %s finds %d kinds of pods", name, describe(m), counts[describe(m)])
			}
		}
	}
}

// The peers of policies must exist, too: a policy for a component that no pod has would admit no traffic.
func TestNetworkPolicies_Pods_Exist(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		objects := rendered(t, values)
		policies := kubetest.All[*networkingv1.NetworkPolicy](objects)
		if name == "small" {
			if len(policies) > 0 {
				t.Errorf("%s: %d policies, want none", name, len(policies))
			}
			continue
		}
		pods := workloads(objects)
		exists := func(s *metav1.LabelSelector) bool {
			return slices.ContainsFunc(pods, func(w workload) bool { return kubetest.Selects(t, s, w.pod.Labels) })
		}
		covered := map[string]bool{}
		for _, p := range policies {
			if !exists(&p.Spec.PodSelector) {
				t.Errorf("%s: %s selects no pods", name, describe(p))
			}
			for _, w := range pods {
				if kubetest.Selects(t, &p.Spec.PodSelector, w.pod.Labels) {
					covered[w.component()] = true
				}
			}
			var peers []networkingv1.NetworkPolicyPeer
			for _, in := range p.Spec.Ingress {
				if len(in.From) == 0 || len(in.Ports) == 0 {
					t.Errorf("%s: %s allows every peer or every port", name, describe(p))
				}
				peers = append(peers, in.From...)
			}
			for _, out := range p.Spec.Egress {
				if len(out.Ports) == 0 {
					t.Errorf("%s: %s lets out to every port", name, describe(p))
				}
				peers = append(peers, out.To...)
			}
			for _, peer := range peers {
				own := peer.PodSelector != nil && peer.PodSelector.MatchLabels["app.kubernetes.io/instance"] != ""
				if own && !exists(peer.PodSelector) && peer.PodSelector.MatchLabels["app.kubernetes.io/component"] != "jobs" {
					t.Errorf("%s: %s has a peer that does not exist: %v", name, describe(p), peer.PodSelector)
				}
			}
		}
		for _, w := range pods {
			if !covered[w.component()] && w.component() != "test" {
				t.Errorf("%s: no policy is for %s", name, describe(w.object))
			}
		}
	}
}

func TestNetworkPolicies_Postgres_IsRestricted(t *testing.T) {
	t.Parallel()
	allowed := []string{"broker", "orchestrator", "migrations"}
	for name, values := range map[string]string{"production": production, "everything": everything} {
		objects := rendered(t, values)
		for _, w := range workloads(objects) {
			for _, p := range kubetest.All[*networkingv1.NetworkPolicy](objects) {
				if !kubetest.Selects(t, &p.Spec.PodSelector, w.pod.Labels) {
					continue
				}
				out := slices.ContainsFunc(p.Spec.Egress, func(e networkingv1.NetworkPolicyEgressRule) bool {
					return slices.ContainsFunc(e.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntValue() == 5432 })
				})
				if out != slices.Contains(allowed, w.component()) {
					t.Errorf("%s: %s may reach Postgres: %v", name, describe(w.object), out)
				}
			}
		}
		for _, p := range kubetest.All[*networkingv1.NetworkPolicy](objects) {
			if p.Name != "keb-postgres" {
				continue
			}
			for _, w := range workloads(objects) {
				in := kubetest.Selects(t, p.Spec.Ingress[0].From[0].PodSelector, w.pod.Labels)
				if in != slices.Contains(allowed, w.component()) {
					t.Errorf("%s: Postgres lets %s in: %v", name, describe(w.object), in)
				}
			}
		}
	}
}

// `helm upgrade --reuse-values` from release 1.0.0 lacks the values that are newer. Helm takes a null as a value that is not set.
func TestCharts_ReusedValues_GetDefaults(t *testing.T) {
	t.Parallel()
	const reused = "lifetimes: null\nmigrations: {activeDeadlineSeconds: null}\nnetworkPolicy: {webhookPorts: null, webhookTo: null}\nosb: {publicURL: null}"
	render := func(values string) map[string]string {
		files, err := renderChart(t, kebDir, values)
		require.NoError(t, err)
		return files
	}
	if diff := cmp.Diff(render(production), render(merged(t, production, reused))); diff != "" {
		t.Errorf("diff (-with defaults +reused)\n%s", diff)
	}
}

func TestNetworkPolicies_Webhooks_ReachReceivers(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]*networkingv1.NetworkPolicyEgressRule{
		"":                                  {Ports: []networkingv1.NetworkPolicyPort{tcp(443)}},
		"networkPolicy: {webhookPorts: []}": nil,
		"networkPolicy: {webhookPorts: [8443], webhookTo: [{ipBlock: {cidr: 10.0.0.0/8}}]}": {
			Ports: []networkingv1.NetworkPolicyPort{tcp(8443)},
			To:    []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}},
		},
	} {
		// Without OpenID Connect, whose issuer has port 443, too.
		p := kubetest.One[*networkingv1.NetworkPolicy](t, rendered(t, merged(t, everything, values)), "keb-orchestrator")
		var got *networkingv1.NetworkPolicyEgressRule
		for i, rule := range p.Spec.Egress {
			if port := rule.Ports[0].Port.IntValue(); port == 443 || port == 8443 {
				got = &p.Spec.Egress[i]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: the rule for receivers: diff (-want +got)\n%s", values, diff)
		}
	}
}

func tcp(port int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(port))}
}

// Without NATS no orchestrator is ready, and operators need the console.
func TestOrchestratorService_UnreadyPods_AreReachable(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"keb-orchestrator": true, "keb-broker": false} {
		if got := kubetest.One[*corev1.Service](t, rendered(t, production), name).Spec.PublishNotReadyAddresses; got != want {
			t.Errorf("%s leads to unready pods: %v, want %v", name, got, want)
		}
	}
}

func TestPods_SecurityContext_IsRestricted(t *testing.T) {
	t.Parallel()
	check := func(name string, objects []client.Object) {
		accounts := map[string]bool{"default": true}
		for _, a := range kubetest.All[*corev1.ServiceAccount](objects) {
			accounts[a.Name] = true
			if a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken {
				t.Errorf("%s: %s mounts its token", name, describe(a))
			}
		}
		for _, w := range workloads(objects) {
			spec, who := w.pod.Spec, name+": "+describe(w.object)
			if s := spec.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil ||
				s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || w.component() != "postgres" && *s.RunAsUser != 65532 {
				t.Errorf("%s: pod security %+v", who, s)
			}
			if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken || !accounts[spec.ServiceAccountName] {
				t.Errorf("%s: ServiceAccount %q, which mounts its token or is not there", who, spec.ServiceAccountName)
			}
			if len(spec.Containers) != 1 || spec.HostNetwork || spec.HostPID || spec.HostIPC {
				t.Errorf("%s: more than one container, or something of the host", who)
			}
			for _, v := range spec.Volumes {
				if v.HostPath != nil {
					t.Errorf("%s: a volume of the host", who)
				}
			}
			no, yes := false, true
			if diff := cmp.Diff(&corev1.SecurityContext{
				AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}, spec.Containers[0].SecurityContext); diff != "" {
				t.Errorf("%s: diff (-want +got)\n%s", who, diff)
			}
		}
	}
	for name, values := range valueSets(t) {
		check(name, rendered(t, values))
	}
	check("step-worker", renderedOf(t, workerDir, team))
}

func TestPods_AnnotationsAndLabels_AreOnAll(t *testing.T) {
	t.Parallel()
	for _, w := range workloads(rendered(t, everything)) {
		if got := [2]string{w.pod.Annotations["a"], w.pod.Labels["team"]}; got != [2]string{"b", "kyma"} {
			t.Errorf("the pods of %s have podAnnotations and podLabels %v", describe(w.object), got)
		}
	}
}

func TestPods_ProbesAndGracePeriod_AreSet(t *testing.T) {
	t.Parallel()
	objects := append(rendered(t, everything), renderedOf(t, workerDir, team)...)
	probed := 0
	for _, w := range workloads(objects) {
		d, ok := w.object.(*appsv1.Deployment)
		if !ok {
			continue
		}
		probed++
		c := d.Spec.Template.Spec.Containers[0]
		for path, probe := range map[string][]*corev1.Probe{"/healthz": {c.StartupProbe, c.LivenessProbe}, "/readyz": {c.ReadinessProbe}} {
			for _, p := range probe {
				if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != path || p.HTTPGet.Port.StrVal != "metrics" {
					t.Errorf("%s: %+v, want %s at metrics", describe(d), p, path)
				}
			}
		}
		if got := environment(c)["KEB_METRICS_ADDR"]; got != ":9090" {
			t.Errorf("%s: probes ask :9090, the service is told %q", describe(d), got)
		}
		if drain := environment(c)["KEB_WORKER_DRAIN_TIMEOUT"]; drain == "60s" && *d.Spec.Template.Spec.TerminationGracePeriodSeconds != 70 {
			t.Errorf("%s: a drain of 60s within %d s", describe(d), *d.Spec.Template.Spec.TerminationGracePeriodSeconds)
		}
		if *d.Spec.Template.Spec.TerminationGracePeriodSeconds < 30 {
			t.Errorf("%s: only %d s to end", describe(d), *d.Spec.Template.Spec.TerminationGracePeriodSeconds)
		}
	}
	if probed < 17 {
		t.Errorf("%d Deployments looked at", probed)
	}
}

func TestAutoscaling_Lag_IsTrigger(t *testing.T) {
	t.Parallel()
	objects := rendered(t, everything)
	hpa := kubetest.One[*autoscalingv2.HorizontalPodAutoscaler](t, objects, "keb-worker-avs")
	metric := hpa.Spec.Metrics[0].External
	if metric.Metric.Name != "keb_bus_consumer_pending" || metric.Metric.Selector.MatchLabels["consumer"] != "avs" || *hpa.Spec.MinReplicas != 2 ||
		hpa.Spec.MaxReplicas != 20 || metric.Target.AverageValue.String() != "100" {
		t.Errorf("%+v", hpa.Spec)
	}
	so := kubetest.One[*scaledObject](t, objects, "keb-worker-edp")
	if diff := cmp.Diff(map[string]string{
		"natsServerMonitoringEndpoint": "keb-nats.kcp-system:8222", "account": "KEB", "stream": "KEB_COMMANDS", "consumer": "edp",
		"lagThreshold": "50", "activationLagThreshold": "0",
	}, so.Spec.Triggers[0].Metadata); diff != "" {
		t.Errorf("diff (-want +got)\n%s", diff)
	}
	for _, name := range []string{"keb-worker-avs", "keb-worker-edp"} {
		if d := kubetest.One[*appsv1.Deployment](t, objects, name); d.Spec.Replicas != nil {
			t.Errorf("%s: an upgrade would set the replicas that the autoscaler has chosen", name)
		}
	}
	if d := kubetest.One[*appsv1.Deployment](t, objects, "keb-worker-btp"); *d.Spec.Replicas != 1 {
		t.Error("a worker without autoscaling has no replicas")
	}
}

func TestMigrations_Hooks_RunBeforeUpgrade(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{production: "pre-install,pre-upgrade", everything: "post-install,pre-upgrade", small: ""} {
		jobs := kubetest.All[*batchv1.Job](rendered(t, values))
		if want == "" {
			if len(jobs) > 0 {
				t.Errorf("%d Jobs although migrations are off", len(jobs))
			}
			continue
		}
		if len(jobs) != 2 {
			t.Fatalf("%d Jobs, want one for each schema", len(jobs))
		}
		for _, j := range jobs {
			if j.Annotations["helm.sh/hook"] != want || j.Spec.Template.Spec.Containers[0].Args[0] != "migrate" {
				t.Errorf("%s: hook %q, args %q", describe(j), j.Annotations["helm.sh/hook"], j.Spec.Template.Spec.Containers[0].Args)
			}
		}
	}
}

func TestMigrations_Deadline_FollowsValues(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]int64{"": 900, "migrations: {activeDeadlineSeconds: 7200}": 7200} {
		for _, j := range kubetest.All[*batchv1.Job](rendered(t, merged(t, production, values))) {
			if got := *j.Spec.ActiveDeadlineSeconds; got != want {
				t.Errorf("%q: %s may take %d s, want %d", values, describe(j), got, want)
			}
		}
	}
}

func TestImages_Values_AreUsed(t *testing.T) {
	t.Parallel()
	images := func(values string) (images []string) {
		for _, w := range workloads(rendered(t, values)) {
			images = append(images, w.pod.Spec.Containers[0].Image)
		}
		slices.Sort(images)
		return slices.Compact(images)
	}
	for _, image := range images(everything) {
		if !strings.HasPrefix(image, "registry.example/mirror/keb/") && !slices.Contains([]string{"nats:2.12-alpine", "postgres:17-alpine", "registry.example/hello:1"}, image) {
			t.Errorf("image %s", image)
		}
	}
	local := images(small + "image: {registry: '', tag: dev}\n")
	for _, want := range []string{"keb/broker:dev", "keb/cli:dev", "keb/orchestrator:dev", "keb/step-worker:dev"} {
		if !slices.Contains(local, want) {
			t.Errorf("no %s in %v", want, local)
		}
	}
	for _, w := range workloads(rendered(t, everything)) {
		if len(w.pod.Spec.ImagePullSecrets) != 1 || w.pod.Spec.ImagePullSecrets[0].Name != "registry" {
			t.Errorf("%s pulls with %v", describe(w.object), w.pod.Spec.ImagePullSecrets)
		}
	}
}

// A Secret that the chart does not create must be in the values. A missing key prevents a pod from starting.
func TestSecretsAndConfigMaps_References_Exist(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		objects := rendered(t, values)
		keys := map[string]map[string]bool{}
		for _, s := range kubetest.All[*corev1.Secret](objects) {
			keys["secret "+s.Name] = map[string]bool{}
			for k, v := range s.StringData {
				keys["secret "+s.Name][k] = v != ""
			}
		}
		for _, c := range kubetest.All[*corev1.ConfigMap](objects) {
			keys["configmap "+c.Name] = map[string]bool{}
			for k := range c.Data {
				keys["configmap "+c.Name][k] = true
			}
		}
		need := func(who, kind, object, key string) {
			if strings.Contains(values, object) && !strings.HasPrefix(object, "keb-") {
				return // named in the values
			}
			if !keys[kind+" "+object][key] {
				t.Errorf("%s: %s needs the key %q of the %s %q, which is not there", name, who, key, kind, object)
			}
		}
		for _, w := range workloads(objects) {
			for _, e := range w.pod.Spec.Containers[0].Env {
				if e.ValueFrom != nil {
					need(describe(w.object), "secret", e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Key)
				}
			}
			mounts := map[string]bool{}
			for _, m := range w.pod.Spec.Containers[0].VolumeMounts {
				mounts[m.Name] = true
			}
			volumes := w.pod.Spec.Volumes
			if s, ok := w.object.(*appsv1.StatefulSet); ok {
				for _, claim := range s.Spec.VolumeClaimTemplates {
					volumes = append(volumes, corev1.Volume{Name: claim.Name})
				}
			}
			if len(mounts) != len(volumes) {
				t.Errorf("%s: %s has %d mounts of %d volumes", name, describe(w.object), len(mounts), len(volumes))
			}
			for _, v := range volumes {
				if !mounts[v.Name] {
					t.Errorf("%s: %s does not mount %s", name, describe(w.object), v.Name)
				}
				if v.Secret != nil {
					for _, i := range v.Secret.Items {
						need(describe(w.object), "secret", v.Secret.SecretName, i.Key)
					}
				}
				if v.ConfigMap != nil {
					for _, i := range v.ConfigMap.Items {
						need(describe(w.object), "configmap", v.ConfigMap.Name, i.Key)
					}
				}
			}
		}
	}
}

func TestSecrets_Default_AreNotCreated(t *testing.T) {
	t.Parallel()
	if made := kubetest.All[*corev1.Secret](rendered(t, production)); len(made) > 0 {
		t.Errorf("%d Secrets, want those of the values only", len(made))
	}
}

func TestConfigMap_Change_RestartsPods(t *testing.T) {
	t.Parallel()
	checksum := func(values, name string) string {
		for _, w := range workloads(rendered(t, values)) {
			if w.object.GetName() == name {
				return w.pod.Annotations["checksum/config"]
			}
		}
		return ""
	}
	for name, change := range map[string]string{
		"keb-orchestrator": "orchestrator: {overlays: {other.yaml: x}}", "keb-nats": "workers: {other: {image: x}}",
	} {
		before := checksum(small+"podLabels: {}\n", name)
		changed := strings.Replace(small, "orchestrator: {replicas: 0}", "", 1)
		changed = strings.Replace(changed, "workers: {spc: {enabled: false}, ias: null}", "", 1) + change + "\n"
		if after := checksum(changed, name); after == "" || after == before {
			t.Errorf("%s: the checksum stays %q", name, after)
		}
	}
}
