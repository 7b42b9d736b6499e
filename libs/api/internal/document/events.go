package document

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/invopop/jsonschema"

	"github.com/kyma-project/keb/libs/event"
)

const schemaID = "https://kyma-project.io/keb/events/"

// Events returns the schemas of the events and the AsyncAPI document by path relative to api. libs is the folder of the module.
func Events(libs string) (map[string][]byte, error) {
	// Members may be added within a version.
	r := &jsonschema.Reflector{Anonymous: true, AllowAdditionalProperties: true, Mapper: mapper}
	err := describe(r, libs, "event")
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
