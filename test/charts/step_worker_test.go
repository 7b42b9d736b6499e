package charts_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

// team is what a team sets that runs its own worker.
const team = `
image: registry.example/team/hello-world:1.0.0
worker: hello-world
`

// teamTLS gives it certificates for all that it does.
const teamTLS = `
nats: {url: "tls://nats:4222", tls: {secretName: client, mutual: true, handshakeFirst: true}}
metrics: {tls: {secretName: own, mutual: true, serverName: metrics.hello}}
podMonitor: {enabled: true}
`

func TestStepWorker_ImageAndName_AreRequired(t *testing.T) {
	t.Parallel()
	objects := renderedOf(t, workerDir, team)
	d := kubetest.One[*appsv1.Deployment](t, objects, "keb-hello-world")
	c := d.Spec.Template.Spec.Containers[0]
	env := environment(c)
	if c.Image != "registry.example/team/hello-world:1.0.0" || env["KEB_NATS_USER"] != event.WorkerUserName("hello-world") {
		t.Errorf("image %s, user %s", c.Image, env["KEB_NATS_USER"])
	}
	// What it takes by default is what the chart keb makes.
	keb := rendered(t, everything)
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		found := false
		for _, w := range workloads(keb) {
			for _, theirs := range w.pod.Spec.Containers[0].Env {
				if theirs.ValueFrom != nil && *theirs.ValueFrom.SecretKeyRef == *e.ValueFrom.SecretKeyRef {
					found = true
				}
			}
		}
		if !found {
			t.Errorf("%s comes from %v, which no release of the chart keb has", e.Name, e.ValueFrom.SecretKeyRef)
		}
	}
	if url := environment(kubetest.One[*appsv1.Deployment](t, keb, "keb-worker-avs").Spec.Template.Spec.Containers[0])["KEB_NATS_URL"]; strings.TrimPrefix(env["KEB_NATS_URL"], "nats") != strings.TrimPrefix(url, "tls") {
		t.Errorf("it looks for NATS at %s, which is at %s", env["KEB_NATS_URL"], url)
	}
	// The bundled NATS lets it in.
	nats := kubetest.One[*networkingv1.NetworkPolicy](t, keb, "keb-nats")
	letIn := false
	for _, peer := range nats.Spec.Ingress[0].From {
		letIn = letIn || peer.PodSelector != nil && kubetest.Selects(t, peer.PodSelector, d.Spec.Template.Labels)
	}
	if !letIn {
		t.Error("the bundled NATS keeps its pods out")
	}
	for _, p := range kubetest.All[*networkingv1.NetworkPolicy](objects) {
		if !kubetest.Selects(t, &p.Spec.PodSelector, d.Spec.Template.Labels) {
			t.Errorf("%s is for other pods", describe(p))
		}
	}
}

func TestStepWorker_InvalidValues_AreNamed(t *testing.T) {
	t.Parallel()
	rejects(t, workerDir, "", map[string]string{"": "/image", "image: x": "/worker", "image: x\nworker: Hello_World": "/worker"})
	rejects(t, workerDir, team, map[string]string{
		"worker_: x":                               "'worker_'",
		"replicas: two":                            "/replicas",
		"nats: {url: nats}":                        "/nats/url",
		"nats: {url: 'nats://u:p@h'}":              "/nats/url",
		"env: {KEB_NATS_URL: x}":                   "KEB_NATS_URL",
		"env: {HELLO: 1}":                          "/env/HELLO",
		"secretEnv: {HELLO: {name: x}}":            "/secretEnv/HELLO",
		"autoscaling: {mode: vpa}":                 "/autoscaling/mode",
		"autoscaling: {mode: hpa, minReplicas: 0}": "autoscaling.minReplicas: must be at least 1",
		"drainSeconds: 0":                          "/drainSeconds",
		"probes: {enabled: maybe}":                 "/probes/enabled",
		"probes: {port: 0}":                        "/probes/port",
	})
}

// KEDA resolves the name in its own namespace.
func TestStepWorker_MonitoringEndpoint_HasNamespace(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"autoscaling: {mode: keda}\n":                                    "keb-nats." + namespace + ":8222",
		"autoscaling: {mode: keda, monitoringEndpoint: 'nats.bus:80'}\n": "nats.bus:80",
	} {
		so := kubetest.One[*scaledObject](t, renderedOf(t, workerDir, team+values), "keb-hello-world")
		if got := so.Spec.Triggers[0].Metadata["natsServerMonitoringEndpoint"]; got != want {
			t.Errorf("%q: KEDA asks %q, want %q", values, got, want)
		}
	}
}

func TestStepWorker_Probes_FollowValues(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"":                                    "startup HTTP:9090/healthz, liveness HTTP:9090/healthz, readiness HTTP:9090/readyz",
		"metrics: {tls: {secretName: own}}\n": "startup HTTPS:9090/healthz, liveness HTTPS:9090/healthz, readiness HTTPS:9090/readyz",
		"metrics: {tls: {secretName: own}}\nprobes: {port: 8080}\n": "startup HTTP:8080/healthz, liveness HTTP:8080/healthz, readiness HTTP:8080/readyz",
		"probes: {enabled: false}\n":                                "",
		"probes: {enabled: false, port: 8080}\n":                    "",
	} {
		c := kubetest.One[*appsv1.Deployment](t, renderedOf(t, workerDir, team+values), "keb-hello-world").Spec.Template.Spec.Containers[0]
		ports := map[string]int32{}
		for _, port := range c.Ports {
			ports[port.Name] = port.ContainerPort
		}
		var got []string
		for _, p := range []struct {
			name  string
			probe *corev1.Probe
		}{{"startup", c.StartupProbe}, {"liveness", c.LivenessProbe}, {"readiness", c.ReadinessProbe}} {
			if p.probe != nil {
				http := p.probe.HTTPGet
				got = append(got, fmt.Sprintf("%s %s:%d%s", p.name, http.Scheme, ports[http.Port.StrVal], http.Path))
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%q: probes %s, want %s", values, text, want)
		}
		if ports["metrics"] != 9090 {
			t.Errorf("%q: metrics at port %d, want 9090", values, ports["metrics"])
		}
	}
}

// initFolder has the templates of keb worker init.
const initFolder = repository + "cmd/keb/internal/scaffold/"

// The values and the images that keb worker init makes fit the chart.
func TestStepWorker_ValuesOfInit_AreValid(t *testing.T) {
	t.Parallel()
	values := readFile(t, initFolder+"common/values.yaml")
	d := kubetest.One[*appsv1.Deployment](t, renderedOf(t, workerDir, values), "keb-my-worker")
	c := d.Spec.Template.Spec.Containers[0]
	if c.Image != "registry.example/team/my-worker:0.1.0" || len(c.Command) > 0 || len(c.Args) > 0 {
		t.Errorf("it runs %s %v %v", c.Image, c.Command, c.Args)
	}
	if got, want := environment(c)["KEB_NATS_USER"], event.WorkerUserName("my-worker"); got != want {
		t.Errorf("it is the user %s of the bus, want %s", got, want)
	}
	pod := d.Spec.Template.Spec.SecurityContext
	user := fmt.Sprintf("\nUSER %d:%d\n", *pod.RunAsUser, *pod.RunAsGroup)
	for _, language := range []string{"golang", "python", "node"} {
		dockerfile := readFile(t, initFolder+language+"/Dockerfile")
		if !strings.Contains(dockerfile, user) || !strings.Contains(dockerfile, fmt.Sprintf("\nEXPOSE %d\n", c.Ports[0].ContainerPort)) ||
			!regexp.MustCompile(`(?m)^ENTRYPOINT \["[^"]+".*\]$`).MatchString(dockerfile) {
			t.Errorf("%s: the image must have the user and the port of the chart, and an entry point that gets SIGTERM itself", language)
		}
	}
}
