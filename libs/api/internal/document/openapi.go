// Package document generates the contracts in api/ from Go types and their comments: the schemas of the OpenAPI documents, the schemas of
// the events, and the AsyncAPI document. The paths of OpenAPI, and the schemas without a Go type, are maintained by hand above the marker in
// each document.
package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/libs/event"
)

//go:generate go test -count=1 -run ^Test(Documents|Events)_GoTypes_MatchFiles$ . -update

const (
	module  = "github.com/kyma-project/keb/libs"
	schemas = "#/components/schemas/"
	marker  = "    # Generated from the Go types by go generate ./api/... in libs; do not edit below.\n"
)

// Document is a file in api/.
type Document struct {
	// File is the file name.
	File string
	// Folders lists the folders of the packages with the types, relative to libs.
	Folders []string
	// Types lists the types that the paths use. Types that they refer to are added.
	Types []any
	// Enums maps named string types to their values.
	Enums map[reflect.Type][]string
	// Adjust adds constraints that Go types cannot express; nil adds none.
	Adjust func(map[string]*jsonschema.Schema) error
}

// Render returns the document with generated schemas. libs and api are the folders of the module and of the documents.
func (d *Document) Render(libs, api string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(api, d.File))
	if err != nil {
		return nil, err
	}
	written, _, found := bytes.Cut(text, []byte(marker))
	if !found {
		return nil, fmt.Errorf("%s: has no line %q", d.File, strings.TrimSpace(marker))
	}
	generated, err := d.schemas(libs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.File, err)
	}
	return slices.Concat(written, []byte(marker), generated), nil
}

func (d *Document) schemas(libs string) ([]byte, error) {
	reflector, err := d.reflector(libs)
	if err != nil {
		return nil, err
	}
	all := map[string]*jsonschema.Schema{}
	for _, v := range d.Types {
		maps.Copy(all, reflector.Reflect(v).Definitions)
	}
	for t, values := range d.Enums {
		s := &jsonschema.Schema{Type: "string", Description: reflector.LookupComment(t, "")}
		for _, v := range values {
			s.Enum = append(s.Enum, v)
		}
		all[t.Name()] = s
	}
	if d.Adjust != nil {
		if err := d.Adjust(all); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := write(&out, name, all[name]); err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
	}
	return out.Bytes(), nil
}

func (d *Document) reflector(libs string) (*jsonschema.Reflector, error) {
	r := &jsonschema.Reflector{Anonymous: true, Namer: name, Mapper: d.mapped}
	return r, describe(r, libs, d.Folders...)
}

// describe makes r use the comments of the packages in folders, which are relative to libs.
func describe(r *jsonschema.Reflector, libs string, folders ...string) error {
	comments := map[string]string{}
	for _, folder := range folders {
		found := &jsonschema.Reflector{}
		if err := found.AddGoComments(module, filepath.Join(libs, folder), jsonschema.WithFullComment()); err != nil {
			return fmt.Errorf("read comments: %w", err)
		}
		for key, text := range found.CommentMap {
			// The key ends with the package's folder, a dot and the name. Folders below are found, too.
			in, key, _ := strings.Cut(key[strings.LastIndex(key, "/")+1:], ".")
			if in != path.Base(folder) {
				continue
			}
			comments[folder+"."+key] = strings.Join(strings.Fields(text), " ")
		}
	}
	r.LookupComment = func(t reflect.Type, field string) string {
		key, _, _ := strings.Cut(t.Name(), "[")
		if field != "" {
			key += "." + field
		}
		return comments[strings.TrimPrefix(t.PkgPath(), module+"/")+"."+key]
	}
	return nil
}

// name returns the name of a schema. A list is named after its elements. event.Error and event.Upgrade are renamed because the API has types of
// these names.
func name(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[event.Error]():
		return "StepError"
	case reflect.TypeFor[event.Upgrade]():
		return "OperationUpgrade"
	}
	of, element, generic := strings.Cut(strings.TrimSuffix(t.Name(), "]"), "[")
	if !generic {
		return of
	}
	return element[strings.LastIndexAny(element, "./*")+1:] + of
}

// mapped returns the schema of a type that reflection cannot describe.
func (d *Document) mapped(t reflect.Type) *jsonschema.Schema {
	if _, ok := d.Enums[t]; ok {
		return &jsonschema.Schema{Ref: schemas + t.Name()}
	}
	if t == reflect.TypeFor[json.RawMessage]() || t == reflect.TypeFor[any]() {
		return &jsonschema.Schema{Type: "object"}
	}
	return nil
}

// write writes a schema as YAML, with one line for each field of an object.
func write(out *bytes.Buffer, name string, s *jsonschema.Schema) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	raw = bytes.ReplaceAll(raw, []byte(`"#/$defs/`), []byte(`"`+schemas))
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return err
	}
	root := document.Content[0]
	flow(root)
	root.Style = 0
	for i := 0; i < len(root.Content); i += 2 {
		if root.Content[i].Value == "properties" {
			root.Content[i+1].Style = 0
		}
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(map[string]*yaml.Node{name: root}); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		out.WriteString("    " + line)
	}
	return nil
}

// flow puts mappings and lists on one line, and quotes only the values that need quotes.
func flow(n *yaml.Node) {
	n.Style = 0
	if n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle
	}
	for _, child := range n.Content {
		flow(child)
	}
}
