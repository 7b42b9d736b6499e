package graphql

import "github.com/vektah/gqlparser/v2/ast"

// arguments returns the field's arguments. It converts single values to lists if the schema requires lists, which GraphQL
// allows.
func (s *Server) arguments(field *ast.Field, vars map[string]any) Arguments {
	args := field.ArgumentMap(vars)
	for _, def := range field.Definition.Arguments {
		if v, ok := args[def.Name]; ok {
			args[def.Name] = s.coerce(def.Type, v)
		}
	}
	return args
}

func (s *Server) coerce(t *ast.Type, value any) any {
	if value == nil {
		return nil
	}
	if t.Elem != nil {
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		out := make([]any, len(list))
		for i, item := range list {
			out[i] = s.coerce(t.Elem, item)
		}
		return out
	}
	object, isObject := value.(map[string]any)
	def := s.schema.Types[t.NamedType]
	if !isObject || def == nil || def.Kind != ast.InputObject {
		return value
	}
	out := make(map[string]any, len(object))
	for name, v := range object {
		out[name] = v
		if f := def.Fields.ForName(name); f != nil {
			out[name] = s.coerce(f.Type, v)
		}
	}
	return out
}
