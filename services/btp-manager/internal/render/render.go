// Package render renders a Helm chart and values to Kubernetes objects, in process and without a cluster. Equal input always gives equal
// objects: Load rejects a chart whose result could vary.
package render

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
)

// notes is the name of the template that Helm prints for users. It contains no objects.
const notes = "NOTES.txt"

// Chart is a validated chart. It is safe for concurrent use.
type Chart struct {
	chart  *chart.Chart
	schema *valuesSchema
	crds   []*unstructured.Unstructured
	last   *memory
}

// Release describes a release of the chart.
type Release struct {
	// Name is the value of .Release.Name.
	Name string
	// Namespace is the namespace of namespaced objects that name none.
	Namespace string
}

// Load reads the chart in fsys, whose root contains Chart.yaml. It returns a *FunctionError for a template that calls a function which is
// random, reads a clock or accesses external data. It also rejects a chart with subcharts, a library chart, a version that is not a valid
// label value, and a values.schema.json that is not a self-contained JSON schema.
func Load(fsys fs.FS) (*Chart, error) {
	files, err := read(fsys)
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("load the chart: %w", err)
	}
	if err := check(c); err != nil {
		return nil, fmt.Errorf("load the chart %s: %w", c.Name(), err)
	}
	s, err := compile(c.Schema)
	if err != nil {
		return nil, fmt.Errorf("load the chart %s: values.schema.json: %w", c.Name(), err)
	}
	crds, err := definitions(c)
	if err != nil {
		return nil, fmt.Errorf("load the chart %s: %w", c.Name(), err)
	}
	return &Chart{chart: c, schema: s, crds: crds, last: &memory{files: map[string]file{}}}, nil
}

// Version returns the chart's version, which each object has in ChartVersionLabel.
func (c *Chart) Version() string { return c.chart.Metadata.Version }

// Render renders the chart with values, which override the chart's defaults. Each object
//
//   - has a namespace if its kind is namespaced, by default that of the release,
//   - has the labels of BTP Manager, and so have its pods,
//   - follows the definitions, accounts and configuration that it needs.
//
// Hooks are omitted, because nothing would run them. Values that the chart's schema rejects result in a *ValuesError. Errors contain no
// values. Render changes neither the chart nor values.
func (c *Chart) Render(release Release, values map[string]any) ([]*unstructured.Unstructured, error) {
	merged, err := merge(c.chart.Values, values)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", c.chart.Name(), err)
	}
	if err := c.schema.validate(merged); err != nil {
		return nil, fmt.Errorf("render %s: %w", c.chart.Name(), err)
	}
	rendered, err := engine.Engine{Strict: true}.Render(c.chart, top(release, merged))
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", c.chart.Name(), err)
	}
	objs, err := c.last.decodeAll(rendered)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", c.chart.Name(), err)
	}
	for _, crd := range c.crds {
		objs = append(objs, crd.DeepCopy())
	}
	if err := finish(objs, release, c.Version()); err != nil {
		return nil, fmt.Errorf("render %s: %w", c.chart.Name(), err)
	}
	return objs, nil
}

// top returns the data for the templates. The capabilities are Helm's defaults, never those of a cluster.
func top(release Release, values map[string]any) chartutil.Values {
	return chartutil.Values{
		"Capabilities": chartutil.DefaultCapabilities.Copy(),
		"Values":       chartutil.Values(values),
		"Release": map[string]any{
			"Name": release.Name, "Namespace": release.Namespace, "Service": "Helm",
			"Revision": 1, "IsInstall": true, "IsUpgrade": false,
		},
	}
}

// finish sets the namespace and the labels of every object, and sorts objs.
func finish(objs []*unstructured.Unstructured, release Release, version string) error {
	var errs []error
	scopes := definedScopes(objs)
	seen := map[string]bool{}
	for _, o := range objs {
		if err := place(o, release.Namespace, scopes); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := label(o, version); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", describe(o), err))
		}
		if seen[describe(o)] {
			errs = append(errs, fmt.Errorf("%s is duplicated", describe(o)))
		}
		seen[describe(o)] = true
	}
	order(objs)
	return errors.Join(errs...)
}

func check(c *chart.Chart) error {
	if len(c.Dependencies()) > 0 || len(c.Metadata.Dependencies) > 0 {
		return errors.New("it has subcharts, which are not rendered")
	}
	if strings.EqualFold(c.Metadata.Type, "library") {
		return errors.New("it is a library, which renders nothing")
	}
	if problems := validation.IsValidLabelValue(c.Metadata.Version); len(problems) > 0 {
		return fmt.Errorf("its version %q cannot be the value of a label: %s", c.Metadata.Version, strings.Join(problems, "; "))
	}
	var errs []error
	for _, t := range c.Templates {
		errs = append(errs, checkFunctions(t.Name, string(t.Data)))
	}
	return errors.Join(errs...)
}

// definitions decodes the folder crds, whose files Helm does not render.
func definitions(c *chart.Chart) ([]*unstructured.Unstructured, error) {
	var crds []*unstructured.Unstructured
	for _, file := range c.CRDObjects() {
		objs, err := decode(file.Name, string(file.File.Data))
		if err != nil {
			return nil, err
		}
		for _, o := range objs {
			if o.GetKind() != crdKind {
				return nil, fmt.Errorf("%s: %s is not a %s", file.Name, describe(o), crdKind)
			}
		}
		crds = append(crds, objs...)
	}
	return crds, nil
}

func read(fsys fs.FS) ([]*loader.BufferedFile, error) {
	var files []*loader.BufferedFile
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		files = append(files, &loader.BufferedFile{Name: name, Data: data})
		return nil
	})
	return files, err
}
