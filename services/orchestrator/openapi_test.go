package orchestrator_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// contract is api/openapi.yaml.
type contract struct {
	document map[string]any
	compiler *jsonschema.Compiler

	mu       sync.Mutex
	compiled map[string]*jsonschema.Schema
	patterns *http.ServeMux
}

const contractFile = "../../api/openapi.yaml"

var theContract = sync.OnceValues(readContract)

func readContract() (*contract, error) {
	text, err := os.ReadFile(contractFile)
	if err != nil {
		return nil, err
	}
	var document any
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	// Once through JSON, for the types that the validator knows.
	plain, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	document, err = jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		return nil, err
	}
	c := &contract{document: document.(map[string]any), compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}, patterns: http.NewServeMux()}
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource("openapi.json", document); err != nil {
		return nil, err
	}
	for _, route := range c.routes() {
		c.patterns.Handle(route, http.NotFoundHandler())
	}
	return c, nil
}

// at finds what a pointer leads to, through references.
func (c *contract) at(pointer string) (value any, where string) {
	value, where = any(c.document), ""
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		object, ok := value.(map[string]any)
		if !ok {
			return nil, where
		}
		if ref, ok := object["$ref"].(string); ok {
			value, where = c.at(strings.TrimPrefix(ref, "#"))
			if object, ok = value.(map[string]any); !ok {
				return nil, where
			}
		}
		value = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
		where += "/" + part
	}
	if object, ok := value.(map[string]any); ok {
		if ref, ok := object["$ref"].(string); ok {
			return c.at(strings.TrimPrefix(ref, "#"))
		}
	}
	return value, where
}

// routes are the patterns of the document, as a mux has them.
func (c *contract) routes() []string {
	var routes []string
	for path, item := range c.document["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			switch method {
			case "get", "put", "post", "delete", "patch":
				routes = append(routes, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(routes)
	return routes
}

func pointer(parts ...string) string {
	for i := range parts {
		parts[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(parts[i])
	}
	return "/" + strings.Join(parts, "/")
}

// validate says what is wrong with a value for the schema that a pointer leads to.
func (c *contract) validate(where string, data []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	schema := c.compiled[where]
	if schema == nil {
		if schema, err = c.compiler.Compile("openapi.json#" + strings.ReplaceAll(where, "{", "%7B")); err != nil {
			return err
		}
		c.compiled[where] = schema
	}
	return schema.Validate(value)
}

// answer says what is wrong with an answer.
func (c *contract) answer(r *http.Request, status int, header http.Header, body []byte) error {
	_, pattern := c.patterns.Handler(r)
	method, path, _ := strings.Cut(pattern, " ")
	if pattern == "" || method == http.MethodGet && r.Method == http.MethodHead {
		switch status {
		case http.StatusNotFound, http.StatusMethodNotAllowed,
			http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests: // strangers do not learn which routes there are
			return nil
		}
		return fmt.Errorf("the route is not in %s", contractFile)
	}
	if status == http.StatusTemporaryRedirect {
		return nil // to the path without dots, by the mux
	}
	responses := pointer("paths", path, strings.ToLower(method), "responses")
	response, where := c.at(responses + pointer(strconv.Itoa(status)))
	if response == nil {
		response, where = c.at(responses + pointer("default"))
	}
	if response == nil {
		return fmt.Errorf("status %d is not in %s", status, contractFile)
	}
	contents, _ := response.(map[string]any)["content"].(map[string]any)
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	if len(contents) == 0 {
		if len(body) > 0 {
			return fmt.Errorf("status %d has no body in %s", status, contractFile)
		}
		return nil
	}
	if contents[media] == nil {
		return fmt.Errorf("status %d: Content-Type %q is not in %s", status, media, contractFile)
	}
	switch media {
	case "application/json":
		return c.validate(where+pointer("content", media, "schema"), body)
	case "text/event-stream":
		return c.events(where+pointer("content", media, "x-events"), body)
	}
	return nil
}

// events says what is wrong with the events of a stream.
func (c *contract) events(where string, body []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<20)
	name := ""
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "event":
			name = value
		case "data":
			if schema, _ := c.at(where + pointer(name)); schema == nil {
				return fmt.Errorf("event %q is not in %s", name, contractFile)
			}
			if err := c.validate(where+pointer(name), []byte(value)); err != nil {
				return fmt.Errorf("event %s: %w", name, err)
			}
		case "", "id":
		default:
			return fmt.Errorf("a stream has no %q", key)
		}
	}
	return lines.Err()
}

// checked is a handler of which every answer is compared with api/openapi.yaml.
func checked(t *testing.T, next http.Handler) http.Handler {
	t.Helper()
	c, err := theContract()
	require.NoError(t, err)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &recorded{ResponseWriter: w, status: http.StatusOK}
		asked := r.Clone(r.Context())
		next.ServeHTTP(seen, r)
		if _, pattern := c.patterns.Handler(asked); pattern == "" && (strings.HasPrefix(r.URL.Path, "/console/") || r.URL.Path == "/") {
			return // the pages of the console
		}
		if seen.status == 499 {
			return // it reaches nobody: the client has hung up
		}
		body := seen.body.Bytes()
		if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
			body = body[:bytes.LastIndexByte(body, '\n')+1] // the client may have gone in the middle
		}
		if err := c.answer(asked, seen.status, w.Header(), body); err != nil {
			t.Errorf("%s %s: %d: %v\n%.2000s", r.Method, r.URL, seen.status, err, body)
		}
	})
}

type recorded struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (r *recorded) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorded) Write(b []byte) (int, error) {
	r.body.Write(b)
	return r.ResponseWriter.Write(b)
}

func (r *recorded) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func TestTheOperatorAPIHasTheRoutesOfItsDocument(t *testing.T) {
	t.Parallel()
	c, err := theContract()
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
	if diff := cmp.Diff(c.routes(), slices.Sorted(maps.Keys(served))); diff != "" {
		t.Errorf("routes (-document +code):\n%s", diff)
	}
}

func TestTheExamplesOfTheDocumentAreValid(t *testing.T) {
	t.Parallel()
	c, err := theContract()
	require.NoError(t, err)
	n := 0
	var walk func(where string, value any)
	check := func(where string, example any) {
		data, err := json.Marshal(example)
		require.NoError(t, err)
		n++
		if text, ok := example.(string); ok && strings.Contains(where, "event-stream") {
			if err := c.events(where+"/x-events", []byte(text)); err != nil {
				t.Errorf("%s: %v", where, err)
			}
			return
		}
		if err := c.validate(where+"/schema", data); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
	walk = func(where string, value any) {
		switch v := value.(type) {
		case map[string]any:
			if _, media := v["schema"]; media {
				if example, ok := v["example"]; ok {
					check(where, example)
				}
				examples, _ := v["examples"].(map[string]any)
				for _, example := range examples {
					check(where, example.(map[string]any)["value"])
				}
			}
			for key, child := range v {
				if key != "example" && key != "examples" {
					walk(where+pointer(key), child)
				}
			}
		case []any:
			for i, child := range v {
				walk(where+"/"+strconv.Itoa(i), child)
			}
		}
	}
	walk("/paths", c.document["paths"])
	walk("/components", c.document["components"])
	if n < 10 {
		t.Errorf("%d examples are found", n)
	}
}

func TestEverySchemaOfTheDocumentCanBeRead(t *testing.T) {
	t.Parallel()
	c, err := theContract()
	require.NoError(t, err)
	for name := range c.document["components"].(map[string]any)["schemas"].(map[string]any) {
		if err := c.validate(pointer("components", "schemas", name), []byte(`"CANARY"`)); err == nil && name != "Duration" {
			t.Errorf("schema %s takes anything", name)
		} else if _, wrong := err.(*jsonschema.ValidationError); err != nil && !wrong { //nolint:errorlint // it is not wrapped
			t.Errorf("schema %s: %v", name, err)
		}
	}
}

// What the tests see of the API would be worth nothing if the check could not fail.
func TestAnAnswerThatIsNotInTheDocumentIsNoticed(t *testing.T) {
	t.Parallel()
	c, err := theContract()
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
		err := c.answer(httptest.NewRequest(http.MethodGet, a.path, nil), a.status, a.header, []byte(a.body))
		if (err == nil) != a.good {
			t.Errorf("%s: %d %s: %v", a.path, a.status, a.body, err)
		}
	}
}
