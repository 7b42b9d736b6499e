package kubetest

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Release describes the first installation of a chart with this name.
type Release struct {
	Name, Namespace string
	// APIVersions are the additional API versions of the cluster.
	APIVersions []string
}

// loaded caches charts by their folder. Tests do not change them.
var loaded sync.Map

// LoadChart reads the chart in a folder once for all tests. Tests must not change it.
func LoadChart(t testing.TB, dir string) *chart.Chart {
	t.Helper()
	if c, ok := loaded.Load(dir); ok {
		return c.(*chart.Chart)
	}
	c, err := loader.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	loaded.Store(dir, c)
	return c
}

// RenderChart renders the chart in a folder, and returns the files by path, as Helm does. values is YAML. It returns an error if the chart
// rejects the values.
func RenderChart(t testing.TB, dir, values string, r Release) (map[string]string, error) {
	t.Helper()
	var given map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	c := LoadChart(t, dir)
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), r.APIVersions...)
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// ChartObjects decodes the objects in rendered YAML files, in the order of the files' paths, to the Go types of the scheme. An unknown field
// fails the test.
func ChartObjects(t testing.TB, scheme *runtime.Scheme, files map[string]string) []client.Object {
	t.Helper()
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []client.Object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".yaml" {
			continue
		}
		for _, document := range documents(t, name, files[name]) {
			obj, _, err := strict.Decode(document, nil, nil)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			o, ok := obj.(client.Object)
			if !ok {
				t.Fatalf("%s: a %T is no object", name, obj)
			}
			objects = append(objects, o)
		}
	}
	return objects
}

// documents returns the documents of a file that are not empty.
func documents(t testing.TB, file, text string) (found [][]byte) {
	t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var content map[string]any
		if err := yaml.Unmarshal(document, &content); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, document)
		}
		if len(content) > 0 {
			found = append(found, document)
		}
	}
}

// All returns the objects of a type.
func All[T client.Object](objects []client.Object) []T {
	var found []T
	for _, o := range objects {
		if is, ok := o.(T); ok {
			found = append(found, is)
		}
	}
	return found
}

// One returns the only object of a type with a name.
func One[T client.Object](t testing.TB, objects []client.Object, name string) T {
	t.Helper()
	found := slices.DeleteFunc(All[T](objects), func(o T) bool { return o.GetName() != name })
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T with the name %s, want 1", len(found), *new(T), name)
	}
	return found[0]
}

// Selects reports whether a selector, which must not be empty, selects these labels.
func Selects(t testing.TB, selector *metav1.LabelSelector, of map[string]string) bool {
	t.Helper()
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		t.Fatal("an empty selector selects everything")
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Set(of))
}
