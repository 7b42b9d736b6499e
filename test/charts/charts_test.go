// Package charts_test tests the charts deploy/helm/keb and deploy/helm/step-worker. Most tests render them. `make e2e SUITE=charts` also
// installs, upgrades and removes the chart keb in two kinds of clusters:
//
//   - with a node that kwok simulates, which shows that Kubernetes accepts all objects of the chart in the order of Helm;
//   - with the node of e2e_node_test.go, which runs pods as Docker containers from the images of `make images`: with their users, security
//     contexts, environment, files, volumes and probes. It ends them like a kubelet, and forwards connections to Services to ready pods.
//     It has no network policies, no resource requests, and pulls no images.
package charts_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

const (
	repository  = "../../"
	kebDir      = repository + "deploy/helm/keb/"
	workerDir   = repository + "deploy/helm/step-worker/"
	namespace   = "kcp-system"
	releaseName = "keb"
)

const (
	// production holds the values for an existing database, bus and external systems.
	production = `
postgres: {existingSecret: database}
nats: {url: "tls://nats-0.example:4222,tls://nats-1.example:4222", existingSecret: nats}
keys: {existingSecret: keys}
osb: {existingSecret: osb}
access:
  tokens: {existingSecret: access}
  oidc: {issuer: "https://issuer.example", audience: keb, viewers: [sre], operators: [keb-admins], clientSecret: {existingSecret: oidc}}
workers:
  avs: {env: {KEB_AVS_URL: "https://avs.example", KEB_AVS_TOKEN_URL: "https://avs.example/token", KEB_AVS_GROUP_ID: "7", KEB_AVS_PARENT_ID: "8", KEB_AVS_INTERNAL_TESTER_ACCESS_ID: "9", KEB_AVS_EXTERNAL_TESTER_ACCESS_ID: "10", KEB_PROVISIONER_URL: "https://p.example"}, secretEnv: {KEB_AVS_PASSWORD: {name: avs, key: password}}}
  btp: {env: {KEB_PROVISIONER_URL: "https://p.example"}}
  edp: {env: {KEB_EDP_URL: "https://edp.example", KEB_EDP_TOKEN_URL: "https://edp.example/token"}, secretFiles: {KEB_EDP_SECRET_FILE: {name: edp, key: secret}}}
  hyperscaler: {secretFiles: {KEB_GARDENER_KUBECONFIG: {name: gardener, key: kubeconfig}}}
  ias: {env: {KEB_IAS_URL: "https://ias.example"}}
  kyma:
    env: {KEB_KYMA_ARTIFACTS_URL: "https://artifacts.example"}
    secretFiles: {KEB_KCP_KUBECONFIG: {name: kcp, key: kubeconfig}}
  lifecycle-manager: {secretFiles: {KEB_KCP_KUBECONFIG: {name: kcp, key: kubeconfig}}}
  provisioner:
    env: {KEB_PROVISIONER_URL: "https://p.example", KEB_GARDENER_URL: "https://g.example"}
  reconciler: {env: {KEB_RECONCILER_URL: "https://r.example"}}
  runtime: {env: {KEB_PROVISIONER_URL: "https://p.example"}}
  spc: {env: {KEB_SPC_URL: "https://spc.example"}}
`
	// everything turns on all that the chart can make.
	everything = `
image: {registry: registry.example/mirror/, tag: 1.2.3, pullPolicy: Always, pullSecrets: [registry]}
secrets: {create: true}
postgres: {bundled: {enabled: true, storage: {className: fast}}}
nats:
  bundled: {enabled: true, extraWorkers: [hello-world], storage: {className: fast}, tlsSecretName: tls-nats}
  tls: {secretName: tls-clients, mutual: true, handshakeFirst: true}
tls: {enabled: true, secretName: tls-services, mutual: true, metrics: true, serverName: metrics.keb}
osb: {jwt: {issuer: "https://issuer.example", audience: keb}}
access: {tokens: {existingSecret: access}, trustedProxies: [10.0.0.0/8], publicURL: "https://console.keb.example"}
extraCA: {configMap: authorities}
tracing: {endpoint: "http://otel.monitoring:4318"}
log: {level: debug, format: text}
priorityClassName: important
podAnnotations: {a: b}
podLabels: {team: kyma}
lifetimes: {trial: 100h}
broker:
  env: {KEB_OSB_RETRY_AFTER: 5s}
  secretEnv: {KEB_PLANS: {name: plans, key: names}}
  secretFiles: {KEB_OSB_JWT_KEY_SET_FILE: {name: jwks, key: keys.json}}
  podAnnotations: {c: d}
  nodeSelector: {kubernetes.io/arch: amd64}
  tolerations: [{key: a, operator: Exists}]
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
orchestrator:
  overlays: {hello.yaml: "operation: provision\nchanges: []\n"}
  maintenancePolicy: '{"rules": []}'
workerDefaults: {podDisruptionBudget: {maxUnavailable: "25%"}}
workers:
  avs: {autoscaling: {mode: hpa, maxReplicas: 20, target: 100}}
  edp: {autoscaling: {mode: keda, minReplicas: 0}}
  btp: {replicas: 1, drainSeconds: 60, resources: {limits: {memory: 512Mi}}}
  event-hubs: {enabled: true}
  lms: {enabled: true}
  service-manager: {enabled: true}
  hello-world: {image: "registry.example/hello:1"}
landscape: {enabled: true, storage: {size: 1Gi}}
jobs:
  deprovision-retrigger: {dryRun: true}
  subaccount-cleanup: {enabled: true, secretEnv: {KEB_CIS_CLIENT_ID: {name: cis, key: id}, KEB_CIS_CLIENT_SECRET: {name: cis, key: secret}}}
ingress:
  osb: {enabled: true, className: nginx, host: keb.example, tlsSecret: keb-tls, annotations: {x: z}}
  console: {enabled: true, host: console.keb.example}
gateway:
  osb: {enabled: true, parentRefs: [{name: gateway, namespace: istio-system}], hostnames: [keb.example]}
  console: {enabled: true, parentRefs: [{name: gateway}]}
podMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboards: {enabled: true, annotations: {folder: KEB}}
`
	// small turns off what can be turned off.
	small = `
secrets: {create: true}
postgres: {bundled: {enabled: true, storage: {size: ""}}}
nats: {bundled: {enabled: true, storage: {size: ""}}}
landscape: {enabled: true}
access: {none: true}
migrations: {enabled: false}
networkPolicy: {enabled: false}
broker: {replicas: 1, podDisruptionBudget: {enabled: false}, topologySpread: {enabled: false}}
orchestrator: {replicas: 0}
workerDefaults: {replicas: 1, resources: {requests: null, limits: null}}
workers: {spc: {enabled: false}, ias: null}
jobs: {deprovision-retrigger: {enabled: false}, trial-expiry: {enabled: false}}
`
)

// valueSets are the values for which the chart keb must be sound; the last is the file that it ships.
func valueSets(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{"production": production, "everything": everything, "small": small, "demo": readFile(t, kebDir+"demo.yaml")}
}

// renderChart renders a chart as Helm does.
func renderChart(t *testing.T, dir, values string) (map[string]string, error) {
	t.Helper()
	return kubetest.RenderChart(t, dir, values, kubetest.Release{Name: releaseName, Namespace: namespace})
}

// rendered are the objects that the chart keb makes of values that must be fine.
func rendered(t *testing.T, values string) []client.Object { return renderedOf(t, kebDir, values) }

// renderings are those so far, by chart and values: most tests look at the same ones.
var renderings sync.Map

// rendering is what was made of a chart; nil until it is.
type rendering struct {
	mu      sync.Mutex
	objects []client.Object
}

// renderedOf are objects of the test's own.
func renderedOf(t *testing.T, dir, values string) []client.Object {
	t.Helper()
	found, _ := renderings.LoadOrStore([2]string{dir, values}, &rendering{})
	r, _ := found.(*rendering)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.objects == nil {
		files, err := renderChart(t, dir, values)
		require.NoError(t, err)
		r.objects = kubetest.ChartObjects(t, knownTypes(t), files)
	}
	objects := make([]client.Object, len(r.objects))
	for i, o := range r.objects {
		objects[i], _ = o.DeepCopyObject().(client.Object)
	}
	return objects
}

// The kinds that Kubernetes does not have, with the fields that the charts use. An unknown field fails the decoding.

type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobLabel          string               `json:"jobLabel"`
		Selector          metav1.LabelSelector `json:"selector"`
		NamespaceSelector struct {
			MatchNames []string `json:"matchNames"`
		} `json:"namespaceSelector"`
		PodMetricsEndpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
			Scheme   string `json:"scheme"`
			TLS      *struct {
				ServerName string          `json:"serverName"`
				CA         secretSelector  `json:"ca"`
				Cert       secretSelector  `json:"cert"`
				Key        secretReference `json:"keySecret"`
			} `json:"tlsConfig"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

type secretReference struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

type secretSelector struct {
	Secret secretReference `json:"secret"`
}

type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ruleFile `json:"spec"`
}

// ruleFile is what Prometheus reads its rules from.
type ruleFile struct {
	Groups []ruleGroup `json:"groups"`
}

type ruleGroup struct {
	Name     string `json:"name"`
	Interval string `json:"interval,omitempty"`
	Rules    []rule `json:"rules"`
}

type rule struct {
	Alert       string            `json:"alert,omitempty"`
	Record      string            `json:"record,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	KeepFor     string            `json:"keep_firing_for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type scaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ScaleTargetRef struct {
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		MinReplicaCount int32 `json:"minReplicaCount"`
		MaxReplicaCount int32 `json:"maxReplicaCount"`
		Triggers        []struct {
			Type     string            `json:"type"`
			Metadata map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

type httpRoute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ParentRefs []struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"parentRefs"`
		Hostnames []string `json:"hostnames"`
		Rules     []struct {
			BackendRefs []struct {
				Name string `json:"name"`
				Port int32  `json:"port"`
			} `json:"backendRefs"`
			Timeouts struct {
				Request string `json:"request"`
			} `json:"timeouts"`
		} `json:"rules"`
	} `json:"spec"`
}

func (o *podMonitor) DeepCopyObject() runtime.Object     { return deepCopy(o) }
func (o *prometheusRule) DeepCopyObject() runtime.Object { return deepCopy(o) }
func (o *scaledObject) DeepCopyObject() runtime.Object   { return deepCopy(o) }
func (o *httpRoute) DeepCopyObject() runtime.Object      { return deepCopy(o) }

func deepCopy[T any](from *T) *T {
	text, err := json.Marshal(from)
	if err != nil {
		panic(err)
	}
	to := new(T)
	if err := json.Unmarshal(text, to); err != nil {
		panic(err)
	}
	return to
}

func knownTypes(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme, err := allTypes()
	require.NoError(t, err)
	return scheme
}

// allTypes is a scheme that nothing changes.
var allTypes = sync.OnceValues(func() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	monitoring := schema.GroupVersion{Group: "monitoring.coreos.com", Version: "v1"}
	scheme.AddKnownTypeWithName(monitoring.WithKind("PodMonitor"), &podMonitor{})
	scheme.AddKnownTypeWithName(monitoring.WithKind("PrometheusRule"), &prometheusRule{})
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"}, &scaledObject{})
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}, &httpRoute{})
	return scheme, nil
})

func describe(o client.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + o.GetName()
}

// workload is whatever makes pods.
type workload struct {
	object   client.Object
	selector *metav1.LabelSelector // nil for those that choose their own
	pod      corev1.PodTemplateSpec
}

func (w workload) component() string { return w.pod.Labels["app.kubernetes.io/component"] }

// workloads are all objects that make pods, and the pod of the chart's test.
func workloads(objects []client.Object) []workload {
	var found []workload
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			found = append(found, workload{o, o.Spec.Selector, o.Spec.Template})
		case *appsv1.StatefulSet:
			found = append(found, workload{o, o.Spec.Selector, o.Spec.Template})
		case *batchv1.Job:
			found = append(found, workload{o, nil, o.Spec.Template})
		case *batchv1.CronJob:
			found = append(found, workload{o, nil, o.Spec.JobTemplate.Spec.Template})
		case *corev1.Pod:
			found = append(found, workload{o, nil, corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}})
		}
	}
	return found
}
