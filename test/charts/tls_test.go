package charts_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

func TestTLS_EachPod_HasItsFiles(t *testing.T) {
	t.Parallel()
	overlaid := merged(t, production, `
tls: {enabled: true, secretName: keb-tls, mutual: true, metrics: true, serverName: metrics.keb}
nats: {tls: {secretName: nats-client, mutual: true}}
postgres: {tls: {secretName: postgres-client, mutual: true}}
`)
	for name, values := range map[string]string{"own": overlaid, "bundled": everything} {
		objects := rendered(t, values)
		for _, w := range workloads(objects) {
			env := environment(w.pod.Spec.Containers[0])
			mounts := map[string]string{}
			for _, m := range w.pod.Spec.Containers[0].VolumeMounts {
				mounts[m.MountPath] = m.Name
			}
			want := map[string]string{}
			hop := func(prefix, ca, folder string) {
				want[prefix+ca], want[prefix+"CERT_FILE"], want[prefix+"KEY_FILE"] = folder+"ca.crt", folder+"tls.crt", folder+"tls.key"
			}
			service := w.component() == "broker" || w.component() == "orchestrator"
			if service || strings.HasPrefix(w.component(), "worker-") {
				hop("KEB_NATS_", "CA_FILE", "/etc/keb/nats-tls/")
				hop("KEB_METRICS_TLS_", "CLIENT_CA_FILE", "/etc/keb/tls/")
			}
			if service {
				hop("KEB_TLS_", "CLIENT_CA_FILE", "/etc/keb/tls/")
			}
			if (service || w.component() == "migrations") && name == "own" {
				hop("KEB_DATABASE_", "CA_FILE", "/etc/keb/postgres-tls/")
			}
			if w.component() == "jobs" {
				hop("KEB_BROKER_", "CA_FILE", "/etc/keb/tls/")
				want["KEB_BROKER_URL"] = "https://keb-broker:8080"
			}
			for variable, value := range want {
				if env[variable] != value {
					t.Errorf("%s, %s: %s is %q, want %q", name, w.component(), variable, env[variable], value)
				}
			}
			for variable, value := range env {
				if folder, found := strings.CutSuffix(value, "/tls.key"); found && mounts[folder] == "" {
					t.Errorf("%s, %s: nothing is mounted for %s=%s", name, w.component(), variable, value)
				}
			}
			for _, m := range w.pod.Spec.Containers[0].VolumeMounts {
				if !slices.ContainsFunc(w.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) && m.Name != "data" {
					t.Errorf("%s, %s: there is no volume %s", name, w.component(), m.Name)
				}
			}
			if probe := w.pod.Spec.Containers[0].ReadinessProbe; want["KEB_METRICS_TLS_CERT_FILE"] != "" && (probe == nil || probe.HTTPGet.Scheme != corev1.URISchemeHTTPS) {
				t.Errorf("%s, %s: the kubelet asks without TLS", name, w.component())
			}
		}
	}
	monitor := kubetest.One[*podMonitor](t, rendered(t, everything), "keb").Spec.PodMetricsEndpoints[0]
	if monitor.Scheme != "https" || monitor.TLS == nil || monitor.TLS.ServerName != "metrics.keb" || monitor.TLS.CA.Secret != (secretReference{Name: "tls-services", Key: "ca.crt"}) ||
		monitor.TLS.Cert.Secret.Key != "tls.crt" || monitor.TLS.Key != (secretReference{Name: "tls-services", Key: "tls.key"}) {
		t.Errorf("Prometheus asks with %+v", monitor)
	}
	conf := kubetest.One[*corev1.ConfigMap](t, rendered(t, everything), "keb-nats").Data["nats.conf"]
	if !strings.Contains(conf, `cert_file: "/etc/nats-tls/tls.crt"`) || !strings.Contains(conf, "verify: true") || !strings.Contains(conf, "handshake_first: true") {
		t.Errorf("the bundled NATS: %s", conf)
	}
	if got := environment(kubetest.One[*appsv1.Deployment](t, rendered(t, everything), "keb-worker-avs").Spec.Template.Spec.Containers[0]); got["KEB_NATS_URL"] != "tls://keb-nats:4222" || got["KEB_NATS_TLS_FIRST"] != "true" {
		t.Errorf("the bundled NATS is reached with %v", slices.Sorted(maps.Keys(got)))
	}
}

// A Secret can have a key that a pod does not need, such as that of the authority of a database.
func TestTLS_Secrets_MountOnlyFilesInUse(t *testing.T) {
	t.Parallel()
	sets := map[string][]client.Object{
		"everything":      rendered(t, everything),
		"CloudNativePG":   rendered(t, merged(t, production, readFile(t, examplesDir+"cloudnative-pg-values.yaml"))),
		"clear clients":   rendered(t, merged(t, production, "tls: {enabled: true, secretName: services}\nnats: {tls: {secretName: authority}}")),
		"worker, mutual":  renderedOf(t, workerDir, team+teamTLS),
		"worker, without": renderedOf(t, workerDir, team+"nats: {tls: {secretName: authority}}\nmetrics: {tls: {secretName: own}}\n"),
	}
	for name, objects := range sets {
		looked := 0
		for _, w := range workloads(objects) {
			c := w.pod.Spec.Containers[0]
			for _, m := range c.VolumeMounts {
				if !slices.Contains([]string{"nats-tls", "postgres-tls", "tls"}, strings.TrimPrefix(m.MountPath, "/etc/keb/")) {
					continue
				}
				looked++
				want := map[string]bool{}
				for _, value := range environment(c) {
					if file, ok := strings.CutPrefix(value, m.MountPath+"/"); ok {
						want[file] = true
					}
				}
				at := slices.IndexFunc(w.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
				got := map[string]bool{}
				for _, i := range w.pod.Spec.Volumes[at].Secret.Items {
					got[i.Path] = i.Key == i.Path
				}
				if !maps.Equal(got, want) {
					t.Errorf("%s: %s gets the files %v of %s, and reads %v", name, describe(w.object), got, m.MountPath, want)
				}
			}
		}
		if looked == 0 {
			t.Errorf("%s: no pod has a Secret with certificates", name)
		}
	}
}

func TestTLS_ServicesAndNotes_UseIt(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]struct{ protocol, scheme string }{
		production: {"", "http"},
		merged(t, production, "tls: {enabled: true, secretName: keb-tls}\n"): {"https", "https"},
	} {
		objects := rendered(t, values)
		for _, name := range []string{"keb-broker", "keb-orchestrator"} {
			for _, port := range kubetest.One[*corev1.Service](t, objects, name).Spec.Ports {
				if got := ptr.Deref(port.AppProtocol, ""); got != want.protocol {
					t.Errorf("the port %s of %s has the protocol %q, want %q", port.Name, name, got, want.protocol)
				}
			}
		}
		files, err := renderChart(t, kebDir, values)
		require.NoError(t, err)
		notes := files["keb/templates/NOTES.txt"]
		for _, address := range []string{want.scheme + "://localhost:8081/", want.scheme + "://keb-broker." + namespace + ":8080"} {
			if !strings.Contains(notes, address) {
				t.Errorf("the notes do not tell of %s:\n%s", address, notes)
			}
		}
	}
}

func TestStepWorkerTLS_NATS_HasClientCertificate(t *testing.T) {
	t.Parallel()
	d := kubetest.One[*appsv1.Deployment](t, renderedOf(t, workerDir, team+"nats: {url: \"tls://nats:4222\", tls: {secretName: client, mutual: true, handshakeFirst: true}}\n"), "keb-hello-world")
	c := d.Spec.Template.Spec.Containers[0]
	env := environment(c)
	if env["KEB_NATS_CA_FILE"] != "/etc/keb/nats-tls/ca.crt" || env["KEB_NATS_CERT_FILE"] != "/etc/keb/nats-tls/tls.crt" ||
		env["KEB_NATS_KEY_FILE"] != "/etc/keb/nats-tls/tls.key" || env["KEB_NATS_TLS_FIRST"] != "true" {
		t.Errorf("the environment is %v", env)
	}
	if len(c.VolumeMounts) != 1 || c.VolumeMounts[0].MountPath != "/etc/keb/nats-tls" || len(d.Spec.Template.Spec.Volumes) != 1 || d.Spec.Template.Spec.Volumes[0].Secret.SecretName != "client" {
		t.Errorf("mounts %v, volumes %v", c.VolumeMounts, d.Spec.Template.Spec.Volumes)
	}
}

func TestStepWorkerTLS_Metrics_UseIt(t *testing.T) {
	t.Parallel()
	own := "metrics: {tls: {secretName: own, serverName: metrics.hello}}\npodMonitor: {enabled: true}\n"
	for name, tt := range map[string]struct {
		values         string
		files          map[string]string // by the end of the variable
		scheme, probed string
		mutual         bool
	}{
		"without": {"podMonitor: {enabled: true}\n", map[string]string{}, "", "HTTP", false},
		"tls":     {own, map[string]string{"CERT_FILE": "tls.crt", "KEY_FILE": "tls.key"}, "https", "HTTPS", false},
		"mutual": {
			merged(t, own, "metrics: {tls: {mutual: true}}"),
			map[string]string{"CERT_FILE": "tls.crt", "KEY_FILE": "tls.key", "CLIENT_CA_FILE": "ca.crt"},
			"https", "HTTPS", true,
		},
	} {
		objects := renderedOf(t, workerDir, team+"nats: {tls: {secretName: client}}\n"+tt.values)
		pod := kubetest.One[*appsv1.Deployment](t, objects, "keb-hello-world").Spec.Template.Spec
		c := pod.Containers[0]
		files := map[string]string{}
		for variable, value := range environment(c) {
			if end, ok := strings.CutPrefix(variable, "KEB_METRICS_TLS_"); ok {
				files[end] = strings.TrimPrefix(value, "/etc/keb/tls/")
			}
		}
		if !maps.Equal(files, tt.files) {
			t.Errorf("%s: the files are %v, want %v", name, files, tt.files)
		}
		secrets := map[string]string{}
		for _, m := range c.VolumeMounts {
			for _, v := range pod.Volumes {
				if v.Name == m.Name {
					secrets[m.MountPath] = v.Secret.SecretName
				}
			}
		}
		want := map[string]string{"/etc/keb/nats-tls": "client"}
		if len(tt.files) > 0 {
			want["/etc/keb/tls"] = "own"
		}
		if !maps.Equal(secrets, want) || len(pod.Volumes) != len(want) {
			t.Errorf("%s: the Secrets are %v, want %v", name, secrets, want)
		}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if string(probe.HTTPGet.Scheme) != tt.probed {
				t.Errorf("%s: the kubelet asks by %s, want %s", name, probe.HTTPGet.Scheme, tt.probed)
			}
		}
		monitor := kubetest.One[*podMonitor](t, objects, "keb-hello-world").Spec.PodMetricsEndpoints[0]
		if monitor.Scheme != tt.scheme || (monitor.TLS != nil) != (tt.scheme != "") {
			t.Errorf("%s: Prometheus asks with %+v", name, monitor)
		}
		if monitor.TLS == nil {
			continue
		}
		if monitor.TLS.ServerName != "metrics.hello" || monitor.TLS.CA.Secret != (secretReference{Name: "own", Key: "ca.crt"}) ||
			(monitor.TLS.Cert.Secret == secretReference{Name: "own", Key: "tls.crt"}) != tt.mutual || (monitor.TLS.Key == secretReference{Name: "own", Key: "tls.key"}) != tt.mutual {
			t.Errorf("%s: Prometheus asks with %+v", name, monitor.TLS)
		}
	}
}

func TestStepWorkerTLS_InvalidValues_AreNamed(t *testing.T) {
	t.Parallel()
	rejects(t, workerDir, team, map[string]string{
		"nats: {tls: {mutual: true}}":                                    "nats.tls.secretName: name the Secret with ca.crt, tls.crt and tls.key",
		"metrics: {tls: {mutual: true}}":                                 "metrics.tls.secretName: name the Secret with tls.crt, tls.key and ca.crt",
		"metrics: {tls: {secretName: own}}\npodMonitor: {enabled: true}": "metrics.tls.serverName: say which name Prometheus expects",
		"metrics: {tls: {enabled: true}}":                                "enabled",
		"nats: {tls: {handshakeFirst: true}}":                            "nats.tls.handshakeFirst: requires TLS",
	})
}

func TestTLS_InvalidValues_AreNamed(t *testing.T) {
	t.Parallel()
	rejects(t, kebDir, small, map[string]string{
		"tls: {enabled: true}": "tls.secretName: name the Secret",
		"tls: {mutual: true}":  "tls.mutual and tls.metrics: mean nothing without tls.enabled",
		"tls: {enabled: true, secretName: a, metrics: true}\npodMonitor: {enabled: true}": "tls.serverName: say which name Prometheus expects",
		"nats: {tls: {mutual: true}}":                  "nats.tls.secretName: name the Secret with ca.crt, tls.crt and tls.key",
		"nats: {tls: {secretName: client}}":            "nats.bundled.tlsSecretName: name the Secret",
		"nats: {bundled: {tlsSecretName: server}}":     "nats.tls.secretName: name the Secret with ca.crt, the authority of the bundled NATS",
		"nats: {tls: {handshakeFirst: true}}":          "nats.bundled.tlsSecretName: name the Secret with the certificate of the bundled NATS, which nats.tls.handshakeFirst needs",
		"postgres: {tls: {secretName: client}}":        "postgres.tls.secretName: must be empty with postgres.bundled.enabled",
		"tls: {enabled: true, secretName: a, x: true}": "x",
	})
	own := merged(t, production, "nats: {tls: {handshakeFirst: true}}")
	rejects(t, kebDir, own, map[string]string{"nats: {url: 'nats://host:4222'}": "nats.tls.handshakeFirst: requires TLS"})
	for _, values := range []string{"", "nats: {url: 'nats://host:4222', tls: {secretName: authority}}"} {
		if _, err := renderChart(t, kebDir, merged(t, own, values)); err != nil {
			t.Errorf("%q: %v", values, err)
		}
	}
}
