// Package graphql serves a GraphQL schema over HTTP. It parses requests and validates them against the SDL; a function resolves each root
// field. It supports what the simulated systems need: variables, aliases, fragments and errors with extensions, but no subscriptions,
// directives or introspection.
package graphql

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/kyma-project/keb/landscape/internal/contract"
)

// Error is an error with extensions that identify it for clients.
type Error struct {
	Message    string
	Extensions map[string]any
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Resolver resolves one root field. Its result is encoded as JSON, so its JSON names must be those of the schema.
type Resolver func(ctx context.Context, r *http.Request, args Arguments) (any, error)

// Arguments are the arguments of a field, with variables and defaults resolved.
type Arguments map[string]any

// Into decodes the arguments into a struct by their JSON names.
func (a Arguments) Into(v any) error {
	raw, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode arguments: %w", err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("decode arguments: %w", err)
	}
	return nil
}

// Server is a schema with its resolvers.
type Server struct {
	schema    *ast.Schema
	rules     *rules.Rules
	resolvers map[string]Resolver
	route     string

	mu   sync.Mutex
	docs map[string]*ast.QueryDocument // validated documents; a bounded cache
}

// New parses the SDL. Every root field needs a resolver, and every resolver a root field. route is the path in the call counters, before
// the field name.
func New(route, sdl string, resolvers map[string]Resolver) (*Server, error) {
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "schema.graphql", Input: sdl})
	if err != nil {
		return nil, fmt.Errorf("load schema: %w", err)
	}
	known := map[string]bool{}
	for _, root := range []*ast.Definition{schema.Query, schema.Mutation} {
		if root == nil {
			continue
		}
		for _, field := range root.Fields {
			known[field.Name] = true
			if _, ok := resolvers[field.Name]; !ok && field.Name[0] != '_' {
				return nil, fmt.Errorf("root field %s has no resolver", field.Name)
			}
		}
	}
	for name := range resolvers {
		if !known[name] {
			return nil, fmt.Errorf("resolver %s has no root field", name)
		}
	}
	return &Server{schema: schema, rules: rules.NewDefaultRules(), resolvers: resolvers, route: route, docs: map[string]*ast.QueryDocument{}}, nil
}

type request struct {
	Query         string         `json:"query"`
	OperationName string         `json:"operationName"`
	Variables     map[string]any `json:"variables"`
}

type responseError struct {
	Message    string         `json:"message"`
	Path       []string       `json:"path,omitempty"`
	Extensions map[string]any `json:"extensions,omitempty"`
}

// ServeHTTP serves a POST with query, variables and operationName. It answers an invalid body with 400 and an invalid query with 422, and
// records both as violations of the contract. Errors of resolvers have status 200, as GraphQL specifies.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Pattern = s.route
	if r.Method != http.MethodPost {
		contract.Error(w, http.StatusMethodNotAllowed, "method %s is not allowed, use POST", r.Method)
		return
	}
	if err := contract.ContentType(r, "application/json"); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	var req request
	if err := decode(r, &req); err != nil {
		contract.Violation(r, "body: %v", err)
		refuse(w, http.StatusBadRequest, err)
		return
	}
	doc, err := s.document(req.Query)
	if err != nil {
		contract.Violation(r, "query: %v", err)
		refuse(w, http.StatusUnprocessableEntity, err)
		return
	}
	op := doc.Operations.ForName(req.OperationName)
	if op == nil {
		contract.Violation(r, "operationName: not in the document")
		refuse(w, http.StatusUnprocessableEntity, fmt.Errorf("operation %q is not in the document", req.OperationName))
		return
	}
	vars, err := validator.VariableValues(s.schema, op, req.Variables)
	if err != nil {
		contract.Violation(r, "variables: %v", err)
		refuse(w, http.StatusUnprocessableEntity, err)
		return
	}
	data, errs := s.run(r, doc, op, vars)
	body := map[string]any{"data": data}
	if len(errs) > 0 {
		body["errors"] = errs
	}
	contract.JSON(w, http.StatusOK, body)
}

// decode decodes the body, which must have no other members.
func decode(r *http.Request, into *request) error {
	body, err := contract.Body(r, contract.MaxBody)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("decode body: %w", err)
	}
	return nil
}

func refuse(w http.ResponseWriter, status int, err error) {
	contract.JSON(w, status, map[string]any{"data": nil, "errors": []responseError{{Message: err.Error()}}})
}

// maxDocs limits the cache: clients that write arguments into the query never repeat it.
const maxDocs = 128

func (s *Server) document(query string) (*ast.QueryDocument, error) {
	s.mu.Lock()
	doc, ok := s.docs[query]
	s.mu.Unlock()
	if ok {
		return doc, nil
	}
	doc, errs := gqlparser.LoadQueryWithRules(s.schema, query, s.rules)
	if len(errs) > 0 {
		return nil, errs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.docs) >= maxDocs {
		clear(s.docs)
	}
	s.docs[query] = doc
	return doc, nil
}

func (s *Server) run(r *http.Request, doc *ast.QueryDocument, op *ast.OperationDefinition, vars map[string]any) (map[string]any, []responseError) {
	root := s.schema.Query
	if op.Operation == ast.Mutation {
		root = s.schema.Mutation
	}
	data := map[string]any{}
	var errs []responseError
	for _, field := range fields(doc, op.SelectionSet) {
		if field.Name == "__typename" {
			data[field.Alias] = root.Name
			continue
		}
		resolve, ok := s.resolvers[field.Name]
		if !ok {
			errs = append(errs, responseError{Message: "field " + field.Name + " is not served", Path: []string{field.Alias}})
			continue
		}
		r.Pattern = s.route + " " + field.Name
		ctx := context.WithValue(r.Context(), selection{}, names(doc, field.SelectionSet))
		value, err := resolve(ctx, r.WithContext(ctx), s.arguments(field, vars))
		if err == nil {
			value, err = shape(doc, field, value)
		}
		data[field.Alias] = value
		if err != nil {
			data[field.Alias] = nil
			errs = append(errs, describe(err, field.Alias))
		}
	}
	return data, errs
}

type selection struct{}

// Selects reports whether the query of a resolver's request contains a field, at any depth.
func Selects(r *http.Request, name string) bool {
	selected, _ := r.Context().Value(selection{}).(map[string]bool)
	return selected[name]
}

// names returns the fields of a selection, including nested ones.
func names(doc *ast.QueryDocument, set ast.SelectionSet) map[string]bool {
	found := map[string]bool{}
	for _, field := range fields(doc, set) {
		found[field.Name] = true
		maps.Copy(found, names(doc, field.SelectionSet))
	}
	return found
}

func describe(err error, alias string) responseError {
	out := responseError{Message: err.Error(), Path: []string{alias}}
	if e, ok := errors.AsType[*Error](err); ok {
		out.Extensions = e.Extensions
	}
	return out
}

// fields flattens fragments. The schemas have no interfaces or unions, so type conditions always match.
func fields(doc *ast.QueryDocument, set ast.SelectionSet) []*ast.Field {
	var out []*ast.Field
	for _, selection := range set {
		switch s := selection.(type) {
		case *ast.Field:
			out = append(out, s)
		case *ast.InlineFragment:
			out = append(out, fields(doc, s.SelectionSet)...)
		case *ast.FragmentSpread:
			out = append(out, fields(doc, doc.Fragments.ForName(s.Name).SelectionSet)...)
		}
	}
	return out
}

// shape converts a resolver's value to JSON and keeps the fields that the query selects.
func shape(doc *ast.QueryDocument, field *ast.Field, value any) (any, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", field.Name, err)
	}
	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return nil, fmt.Errorf("decode %s: %w", field.Name, err)
	}
	return pick(doc, field, plain), nil
}

func pick(doc *ast.QueryDocument, field *ast.Field, value any) any {
	if len(field.SelectionSet) == 0 {
		return value
	}
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = pick(doc, field, v[i])
		}
		return v
	case map[string]any:
		out := map[string]any{}
		for _, sub := range fields(doc, field.SelectionSet) {
			if sub.Name == "__typename" {
				out[sub.Alias] = field.Definition.Type.Name()
				continue
			}
			out[sub.Alias] = pick(doc, sub, v[sub.Name])
		}
		return out
	default:
		return value
	}
}
