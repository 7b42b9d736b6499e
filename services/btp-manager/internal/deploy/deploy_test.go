// Package deploy tests the deployment of BTP Manager: its chart, its alerts and its dashboard.
package deploy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

const (
	repository = "../../../../"
	chartDir   = repository + "deploy/helm/btp-manager/"
	// everything enables all objects of the chart.
	everything = `
prerequisites: {namespace: true, priorityClass: true}
image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
imagePullSecrets: [{name: registry}]
settings: {HardDeleteTimeout: 30m, BlockDeletion: true, EnableLimitedCache: false, ConfigName: settings, OperandPullSecrets: "a,b", OperandEgressPorts: "443"}
configMap: {create: true, settings: {ReadyTimeout: 2m, OperandFirst: true}}
operandImage: registry.example/operand:1.2.3
log: {level: debug, format: text}
btpOperator: {create: true}
priorityClassName: kyma-system
nodeSelector: {kubernetes.io/arch: amd64}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
podAnnotations: {a: b}
podLabels: {team: kyma}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboard: {enabled: true}
`
	small = `
namespace: elsewhere
replicas: 1
configMap: {create: true}
podDisruptionBudget: {enabled: false}
networkPolicy: {metricsFrom: []}
dashboard: {enabled: true, labels: {}}
`
	bare = `
replicas: 0
networkPolicy: {enabled: false}
resources: {limits: null, requests: null}
`
)

// valueSets are the values with which the chart must be valid.
func valueSets() map[string]string {
	return map[string]string{"defaults": "", "everything": everything, "small": small, "bare": bare}
}

// renderChart renders the chart like Helm, for a cluster with additional kinds.
func renderChart(t *testing.T, values string, known ...string) ([]client.Object, error) {
	t.Helper()
	files, err := kubetest.RenderChart(t, chartDir, values, kubetest.Release{Name: "release", Namespace: "default", APIVersions: known})
	if err != nil {
		return nil, err
	}
	return kubetest.ChartObjects(t, knownTypes(t), files), nil
}

// rendered is renderChart for valid values.
func rendered(t *testing.T, values string, known ...string) []client.Object {
	t.Helper()
	objects, err := renderChart(t, values, known...)
	require.NoError(t, err)
	return objects
}

// knownTypes are the kinds of the chart's objects.
func knownTypes(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, addMonitoring,
	} {
		require.NoError(t, add(scheme))
	}
	return scheme
}

func describe(o client.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}

func configMapData(t *testing.T, objects []client.Object, name string) map[string]string {
	t.Helper()
	return kubetest.One[*corev1.ConfigMap](t, objects, name).Data
}
