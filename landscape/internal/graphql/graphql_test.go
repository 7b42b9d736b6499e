package graphql_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/landscape/internal/graphql"
)

const sdl = `
input Filter { key: String!, values: [String!] }
type Item { id: ID!, name: String, parts: [Item!] }
type Query { items(filter: [Filter!], first: Int = 2): [Item!]! }
type Mutation { fail(id: ID!): Item }
`

func request(t testing.TB, body string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/graphql", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	return r
}

func server(t testing.TB) *graphql.Server {
	t.Helper()
	s, err := graphql.New("/graphql", sdl, map[string]graphql.Resolver{
		"items": func(_ context.Context, _ *http.Request, args graphql.Arguments) (any, error) {
			var in struct {
				Filter []struct {
					Key    string
					Values []string
				}
				First int
			}
			if err := args.Into(&in); err != nil {
				return nil, err
			}
			items := []map[string]any{}
			for _, f := range in.Filter {
				parts := []any{}
				for _, v := range f.Values {
					parts = append(parts, map[string]any{"id": v})
				}
				items = append(items, map[string]any{"id": f.Key, "name": in.First, "parts": parts})
			}
			return items, nil
		},
		"fail": func(context.Context, *http.Request, graphql.Arguments) (any, error) {
			return nil, &graphql.Error{Message: "no", Extensions: map[string]any{"error_code": 400}}
		},
	})
	require.NoError(t, err)
	return s
}

func post(t testing.TB, body string) (int, any) {
	t.Helper()
	w := httptest.NewRecorder()
	server(t).ServeHTTP(w, request(t, body))
	var got any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
	return w.Code, got
}

func TestServer_Query_SelectsFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want string }{
		"aliases, defaults and a single value for a list": {
			`{"query":"{ result: items(filter: {key: \"k\", values: \"v\"}) { name parts { i: id } } }"}`,
			`{"data":{"result":[{"name":2,"parts":[{"i":"v"}]}]}}`,
		},
		"variables": {
			`{"query":"query($f: [Filter!], $n: Int) { items(filter: $f, first: $n) { id name } }","variables":{"f":[{"key":"a"},{"key":"b"}],"n":7}}`,
			`{"data":{"items":[{"id":"a","name":7},{"id":"b","name":7}]}}`,
		},
		"fragments and type names": {
			`{"query":"{ items(filter: [{key: \"k\"}]) { ...f ... on Item { __typename } } } fragment f on Item { id }"}`,
			`{"data":{"items":[{"id":"k","__typename":"Item"}]}}`,
		},
		"errors with extensions": {
			`{"query":"mutation { result: fail(id: 1) { id } }"}`,
			`{"data":{"result":null},"errors":[{"message":"no","path":["result"],"extensions":{"error_code":400}}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want any
			require.NoError(t, json.Unmarshal([]byte(c.want), &want))
			status, got := post(t, c.body)
			if diff := cmp.Diff(want, got); diff != "" || status != 200 {
				t.Errorf("status %d (-want +got):\n%s", status, diff)
			}
		})
	}
}

func TestServer_InvalidRequest_IsRejected(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		`{`:                              400,
		`{"query":"{ "}`:                 422,
		`{"query":"{ nothing { id } }"}`: 422,
		`{"query":"{ items(filter: {values: []}) { id } }"}`:                           422,
		`{"query":"query($n: Int!) { items(first: $n) { id } }"}`:                      422,
		`{"query":"query a { items { id } }","operationName":"b"}`:                     422,
		`{"query":"query a { items { id } } query b { items { id } }"}`:                422,
		`{"query":"query($n: Int) { items(first: $n) { id } }","variables":{"n":"x"}}`: 422,
	} {
		status, got := post(t, body)
		errs, _ := got.(map[string]any)["errors"].([]any)
		if status != want || len(errs) == 0 {
			t.Errorf("%s is answered %d %v, want %d with errors", body, status, got, want)
		}
	}
}

func TestNew_MissingResolver_IsRejected(t *testing.T) {
	t.Parallel()
	if _, err := graphql.New("/", sdl, nil); err == nil {
		t.Error("a schema without resolvers is accepted")
	}
	if _, err := graphql.New("/", `type Query { a: Int }`, map[string]graphql.Resolver{"a": nil, "b": nil}); err == nil {
		t.Error("a resolver without a field is accepted")
	}
	if _, err := graphql.New("/", `type Query {`, nil); err == nil {
		t.Error("a broken schema is accepted")
	}
	var e *graphql.Error
	if !errors.As(error(&graphql.Error{Message: "m"}), &e) || e.Error() != "m" {
		t.Error("the message is lost")
	}
}

func FuzzServer(f *testing.F) {
	for _, s := range []string{`{"query":"{ items { id } }"}`, `{"query":"{ __typename }"}`, `{"query":"{ __schema { types { name } } }"}`, `{}`, `[]`, `{"query":"subscription { a }"}`} {
		f.Add(s)
	}
	s := server(f)
	f.Fuzz(func(t *testing.T, body string) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, request(t, body))
		if !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q is answered with %q", body, w.Body)
		}
	})
}
