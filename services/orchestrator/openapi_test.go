package orchestrator_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit/openapi"
)

var theDocument = sync.OnceValues(func() (*openapi.Document, error) { return openapi.Read("../../api/openapi.yaml") })

// checked compares every answer of a handler with api/openapi.yaml, except the pages of the console.
func checked(t *testing.T, next http.Handler) http.Handler {
	t.Helper()
	c, err := theDocument()
	require.NoError(t, err)
	return c.Checked(t, next, func(r *http.Request) bool {
		return !c.Has(r) && (strings.HasPrefix(r.URL.Path, "/console/") || r.URL.Path == "/")
	})
}

func TestOpenAPI_Routes_MatchTheDocument(t *testing.T) {
	t.Parallel()
	c, err := theDocument()
	require.NoError(t, err)
	served := map[string]bool{}
	for _, pattern := range registered(t) {
		method, path, ok := strings.Cut(pattern, " ")
		if !ok {
			method, path = http.MethodGet, pattern
		}
		if path != "/console/" && path != "/{$}" { // the pages of the console
			served[method+" "+path] = true
		}
	}
	if diff := cmp.Diff(c.Routes(), slices.Sorted(maps.Keys(served))); diff != "" {
		t.Errorf("routes (-document +code):\n%s", diff)
	}
}

func TestOpenAPI_Examples_AreValid(t *testing.T) {
	t.Parallel()
	c, err := theDocument()
	require.NoError(t, err)
	if n := c.Examples(t); n < 10 {
		t.Errorf("%d examples are found", n)
	}
}

func TestOpenAPI_Schemas_CanBeRead(t *testing.T) {
	t.Parallel()
	c, err := theDocument()
	require.NoError(t, err)
	for name := range c.Root["components"].(map[string]any)["schemas"].(map[string]any) {
		if err := c.Validate(openapi.Pointer("components", "schemas", name), []byte(`"CANARY"`)); err == nil && name != "Duration" {
			t.Errorf("schema %s accepts anything", name)
		} else if _, wrong := err.(*jsonschema.ValidationError); err != nil && !wrong { //nolint:errorlint // it is not wrapped
			t.Errorf("schema %s: %v", name, err)
		}
	}
}

// The comparison is useful only if it can fail.
func TestOpenAPI_UndocumentedAnswer_IsFound(t *testing.T) {
	t.Parallel()
	c, err := theDocument()
	require.NoError(t, err)
	jsonHeader, events := http.Header{"Content-Type": {"application/json"}}, http.Header{"Content-Type": {"text/event-stream"}}
	for _, a := range []struct {
		path   string
		status int
		header http.Header
		body   string
		good   bool
	}{
		{"/me", 200, jsonHeader, `{"name": "n", "role": "viewer", "authentication": "none"}`, true},
		{"/me", 200, jsonHeader, `{"name": "n", "role": "king", "authentication": "none"}`, false},
		{"/me", 200, jsonHeader, `{"name": "n", "role": "viewer", "authentication": "none", "more": 1}`, false},
		{"/me", 200, jsonHeader, `{"name": "n", "role": "viewer"}`, false},
		{"/me", 418, jsonHeader, `{"error": "x"}`, false},
		{"/me", 401, jsonHeader, `{"error": "x"}`, true},
		{"/me", 401, http.Header{"Content-Type": {"text/html"}}, `x`, false},
		{"/nothing", 200, jsonHeader, `{}`, false},
		{"/nothing", 404, jsonHeader, `{}`, true},
		{"/orchestrations/x/operations/y", 404, jsonHeader, `{"error": "x"}`, true},
		{"/orchestrations/x/operations/y", 404, jsonHeader, `{"err": "x"}`, false},
		{"/stream", 200, events, "event: resync\ndata: {\"reason\": \"x\"}\n\n", true},
		{"/stream", 200, events, "event: resync\ndata: {}\n\n", false},
		{"/stream", 200, events, "event: other\ndata: {}\n\n", false},
	} {
		err := c.Answer(httptest.NewRequest(http.MethodGet, a.path, nil), a.status, a.header, []byte(a.body))
		if (err == nil) != a.good {
			t.Errorf("%s: %d %s: %v", a.path, a.status, a.body, err)
		}
	}
}
