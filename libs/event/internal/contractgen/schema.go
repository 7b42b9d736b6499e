// Package contractgen generates api/events and api/asyncapi.yaml from package event.
package contractgen

import (
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/kyma-project/keb/libs/event"
)

//go:generate go test -count=1 -run ^TestContract_GeneratedFiles_AreUpToDate$ . -update

const (
	module   = "github.com/kyma-project/keb/libs/event"
	schemaID = "https://kyma-project.io/keb/events/"
)

// Generate returns the generated files by path relative to api. dir is the source folder of package event, which contains the descriptions.
func Generate(dir string) (map[string][]byte, error) {
	r, err := reflector(dir)
	if err != nil {
		return nil, err
	}
	files := make(map[string][]byte)
	for _, e := range event.Contract() {
		if files["events/"+SchemaFile(e.Type)], err = schema(r, e); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", e.Type, err)
		}
	}
	if files["asyncapi.yaml"], err = asyncAPI(); err != nil {
		return nil, fmt.Errorf("asyncapi: %w", err)
	}
	return files, nil
}

// SchemaFile returns the name of the schema file of a type.
func SchemaFile(t event.Type) string { return string(t) + ".schema.json" }

func reflector(dir string) (*jsonschema.Reflector, error) {
	r := &jsonschema.Reflector{
		Anonymous:                 true,
		AllowAdditionalProperties: true, // within a version, members may be added
		Mapper:                    mapper,
	}
	if err := r.AddGoComments(module, dir, jsonschema.WithFullComment()); err != nil {
		return nil, fmt.Errorf("read comments: %w", err)
	}
	comments := make(map[string]string, len(r.CommentMap))
	for name, text := range r.CommentMap {
		// The library joins the module and the folder.
		if name, in := strings.CutPrefix(name, path.Join(module, dir)+"."); in {
			comments[module+"."+name] = strings.Join(strings.Fields(text), " ")
		}
	}
	r.CommentMap = comments
	return r, nil
}

// mapper returns the schemas of types that the library cannot describe.
func mapper(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		// Every raw member of the contract is an object, except the data of an event from outside, see constrain. CredentialsAnswer is not
		// sent on a stream.
		return &jsonschema.Schema{Type: "object"}
	case reflect.TypeFor[event.OperationType]():
		return enum(event.OperationTypes()...)
	case reflect.TypeFor[event.Purpose]():
		return enum(event.Purposes()...)
	case reflect.TypeFor[event.Outcome]():
		return enum(event.OutcomeSucceeded, event.OutcomeRetry, event.OutcomeFailed, event.OutcomeSkipped,
			event.OutcomeNotCompleted, event.OutcomeStageLost, event.OutcomeNoAnswer)
	}
	return nil
}

func enum[T ~string](values ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

func schema(r *jsonschema.Reflector, e event.Entry) ([]byte, error) {
	s := r.Reflect(e.Payload)
	s.ID = jsonschema.ID(schemaID + SchemaFile(e.Type))
	s.Title = e.Name
	for name, def := range s.Definitions {
		constrain(def)
		if name == e.Name {
			def.Description = e.Summary
		}
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// words lists the members that become tokens of subjects.
var words = []string{"operationId", "stage", "step"}

// constrain adds the constraints that the Validate methods check and Go types cannot express.
func constrain(s *jsonschema.Schema) {
	if s.Properties == nil {
		return
	}
	for _, name := range words {
		if p, ok := s.Properties.Get(name); ok && p.Type == "string" {
			p.Pattern = "^[A-Za-z0-9_-]+$"
			if !required(s, name) {
				p.Pattern = "^[A-Za-z0-9_-]*$"
			}
		}
	}
	for _, name := range []string{"dispatch", "stageAttempt", "stepAttempt"} {
		if p, ok := s.Properties.Get(name); ok {
			p.Minimum = "1"
		}
	}
	if p, ok := s.Properties.Get("data"); ok {
		p.Type = "" // any JSON
	}
	if p, ok := s.Properties.Get("key"); ok {
		p.Pattern = `^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`
	}
	if p, ok := s.Properties.Get("retryAfter"); ok {
		p.Minimum = "0"
	}
	if p, ok := s.Properties.Get("cursor"); ok {
		p.Minimum = "1"
		if _, isFact := s.Properties.Get("operationType"); isFact {
			p.Minimum = "0"
		}
	}
}

func required(s *jsonschema.Schema, name string) bool {
	return slices.Contains(s.Required, name)
}
