// Package charttest renders Helm charts in tests, without a cluster, and finds its way in what they make.
package charttest

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

// Release is what a chart is rendered for: the first installation of this name.
type Release struct {
	Name, Namespace string
	// APIVersions are those that the cluster knows beside its own.
	APIVersions []string
}

// loaded are charts by their folder: nothing changes them.
var loaded sync.Map

// Load reads the chart in a folder, once for all tests, which must not change it.
func Load(t testing.TB, dir string) *chart.Chart {
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

// Render makes the files of the chart in a folder, by their paths, as Helm does. values are YAML. The error is that of values that the
// chart refuses.
func Render(t testing.TB, dir, values string, r Release) (map[string]string, error) {
	t.Helper()
	var given map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	c := Load(t, dir)
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), r.APIVersions...)
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// Objects are those in the YAML files that Render made, in the order of the files' paths, in their Go types of the scheme. A field that
// the type does not have fails the test.
func Objects(t testing.TB, scheme *runtime.Scheme, files map[string]string) []client.Object {
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

// documents are those of a file that hold something.
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

// Selects tells whether a selector, which must not be empty, selects what has these labels.
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
