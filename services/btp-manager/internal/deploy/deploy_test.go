// Package deploy holds the tests of what BTP Manager is deployed with: its chart, its alerts and its dashboard.
package deploy_test

import (
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

const (
	repository = "../../../../"
	chartDir   = repository + "deploy/helm/btp-manager/"
	// everything turns on all that the chart can make.
	everything = `
prerequisites: {namespace: true, priorityClass: true}
image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
imagePullSecrets: [{name: registry}]
settings: {HardDeleteTimeout: 30m, BlockDeletion: true, EnableLimitedCache: false, ConfigName: settings}
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

// valueSets are the values for which the chart must be sound.
func valueSets() map[string]string {
	return map[string]string{"defaults": "", "everything": everything, "small": small, "bare": bare}
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render renders the chart as Helm does, for a cluster that knows some kinds beside those of Kubernetes.
func render(t *testing.T, values string, known ...string) ([]client.Object, error) {
	t.Helper()
	var given map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	c := load(t)
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), known...)
	release := chartutil.ReleaseOptions{Name: "release", Namespace: "default", IsInstall: true}
	all, err := chartutil.ToRenderValues(c, given, release, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var objects []client.Object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".yaml" {
			objects = append(objects, decode(t, name, files[name])...)
		}
	}
	return objects, nil
}

// rendered is render for values that must be fine.
func rendered(t *testing.T, values string, known ...string) []client.Object {
	t.Helper()
	objects, err := render(t, values, known...)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// decode reads the objects of a manifest into their Go types. A field that the type does not have fails the test.
func decode(t *testing.T, file, manifest string) []client.Object {
	t.Helper()
	scheme := knownTypes(t)
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []client.Object
	documents := utilyaml.NewYAMLReader(newReader(manifest))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		var content map[string]any
		if err := yaml.Unmarshal(document, &content); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, document)
		}
		if len(content) == 0 {
			continue
		}
		obj, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", file, err, document)
		}
		o, ok := obj.(client.Object)
		if !ok {
			t.Fatalf("%s: a %T is no object", file, obj)
		}
		objects = append(objects, o)
	}
}

// knownTypes are the kinds that the chart makes.
func knownTypes(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, addMonitoring,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// all returns the objects of a type.
func all[T client.Object](objects []client.Object) []T {
	var found []T
	for _, o := range objects {
		if is, ok := o.(T); ok {
			found = append(found, is)
		}
	}
	return found
}

// one returns the only object of a type with a name.
func one[T client.Object](t *testing.T, objects []client.Object, name string) T {
	t.Helper()
	found := slices.DeleteFunc(all[T](objects), func(o T) bool { return o.GetName() != name })
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T with the name %s, want 1", len(found), *new(T), name)
	}
	return found[0]
}

func describe(o client.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}

func selects(t *testing.T, selector *metav1.LabelSelector, labels map[string]string) bool {
	t.Helper()
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		t.Fatal("an empty selector selects everything")
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labelSet(labels))
}

func configMapData(t *testing.T, objects []client.Object, name string) map[string]string {
	t.Helper()
	return one[*corev1.ConfigMap](t, objects, name).Data
}
