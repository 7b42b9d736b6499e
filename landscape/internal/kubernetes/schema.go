package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/kyma-project/keb/landscape/internal/contract"
)

// Schema is the structural schema of a custom resource as a JSON Schema. Unknown members are dropped.
type Schema struct {
	*contract.Schema
	document shape
}

// shape is the part of a schema that lists the members.
type shape struct {
	Properties map[string]shape `json:"properties"`
	Items      *shape           `json:"items"`
}

// MustSchema parses a schema that is part of the program. It panics if the schema is invalid.
func MustSchema(document []byte) *Schema {
	s := &Schema{Schema: contract.MustSchema(document)}
	if err := json.Unmarshal(document, &s.document); err != nil {
		panic(fmt.Sprintf("kubernetes: schema: %v", err))
	}
	return s
}

// prune drops unknown members, like the API server, and records them, because the client expects them to have an effect.
func (c *collection) prune(r *http.Request, body map[string]any) {
	if c.Schema == nil {
		return
	}
	for _, member := range c.Schema.document.prune(body, "") {
		contract.Violation(r, "%s: not in the schema of %s, dropped", member, c.Kind)
	}
}

func (s shape) prune(value any, path string) (dropped []string) {
	switch value := value.(type) {
	case map[string]any:
		if s.Properties == nil {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			member, ok := s.Properties[name]
			if !ok {
				delete(value, name)
				dropped = append(dropped, path+name)
				continue
			}
			dropped = append(dropped, member.prune(value[name], path+name+".")...)
		}
	case []any:
		if s.Items == nil {
			return nil
		}
		for i, item := range value {
			dropped = append(dropped, s.Items.prune(item, fmt.Sprintf("%s%d.", path, i))...)
		}
	}
	return dropped
}
