// Package openapi compares the answers of a server with an OpenAPI document.
package openapi

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// Document is an OpenAPI document. It is safe for concurrent use.
type Document struct {
	// Root is the document itself.
	Root map[string]any

	file     string
	compiler *jsonschema.Compiler

	mu       sync.Mutex
	compiled map[string]*jsonschema.Schema
	patterns *http.ServeMux
	// paths are the paths of the patterns without the path of a server.
	paths map[string]string
}

// Read reads a document.
func Read(file string) (*Document, error) {
	text, err := os.ReadFile(file)
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
	c := &Document{file: file, Root: document.(map[string]any), compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}, patterns: http.NewServeMux(), paths: map[string]string{}}
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource("openapi.json", document); err != nil {
		return nil, err
	}
	for _, route := range c.Routes() {
		method, path, _ := strings.Cut(route, " ")
		for _, prefix := range c.Prefixes() {
			pattern := method + " " + prefix + path
			c.patterns.Handle(pattern, http.NotFoundHandler())
			c.paths[pattern] = path
		}
	}
	return c, nil
}

// Prefixes are the paths of the servers of the document, with their variables as a mux has them.
func (c *Document) Prefixes() []string {
	servers, _ := c.Root["servers"].([]any)
	var out []string
	for _, server := range servers {
		address, _ := server.(map[string]any)["url"].(string)
		_, host, _ := strings.Cut(address, "://")
		_, path, found := strings.Cut(host, "/")
		if found {
			path = "/" + path
		}
		out = append(out, path)
	}
	return out
}

// at finds what a pointer leads to, through references.
func (c *Document) at(pointer string) (value any, where string) {
	value, where = any(c.Root), ""
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

// Routes are the patterns of the document, as a mux has them.
func (c *Document) Routes() []string {
	var routes []string
	for path, item := range c.Root["paths"].(map[string]any) {
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

// Pointer is a JSON pointer to a part of a document.
func Pointer(parts ...string) string {
	for i := range parts {
		parts[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(parts[i])
	}
	return "/" + strings.Join(parts, "/")
}

// Validate validates a value against the schema at a pointer.
func (c *Document) Validate(where string, data []byte) error {
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

// Examples validates every example of the document, and returns their number.
func (c *Document) Examples(t testing.TB) int {
	t.Helper()
	return c.examples(t, "/paths", c.Root["paths"]) + c.examples(t, "/components", c.Root["components"])
}

func (c *Document) examples(t testing.TB, where string, value any) int {
	t.Helper()
	n := 0
	switch v := value.(type) {
	case map[string]any:
		if _, media := v["schema"]; media {
			all, _ := v["examples"].(map[string]any)
			if example, ok := v["example"]; ok {
				n += c.example(t, where, example)
			}
			for _, example := range all {
				n += c.example(t, where, example.(map[string]any)["value"])
			}
		}
		for key, child := range v {
			if key != "example" && key != "examples" {
				n += c.examples(t, where+Pointer(key), child)
			}
		}
	case []any:
		for i, child := range v {
			n += c.examples(t, where+"/"+strconv.Itoa(i), child)
		}
	}
	return n
}

func (c *Document) example(t testing.TB, where string, example any) int {
	t.Helper()
	text, isText := example.(string)
	var err error
	if isText && strings.Contains(where, "event-stream") {
		err = c.Events(where+"/x-events", []byte(text))
	} else {
		var data []byte
		if data, err = json.Marshal(example); err == nil {
			err = c.Validate(where+"/schema", data)
		}
	}
	if err != nil {
		t.Errorf("%s: %v", where, err)
	}
	return 1
}

// Answer validates an answer.
func (c *Document) Answer(r *http.Request, status int, header http.Header, body []byte) error {
	_, pattern := c.patterns.Handler(r)
	method, _, _ := strings.Cut(pattern, " ")
	path := c.paths[pattern]
	if pattern == "" || method == http.MethodGet && r.Method == http.MethodHead {
		switch status {
		case http.StatusNotFound, http.StatusMethodNotAllowed,
			http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests: // strangers do not learn which routes there are
			return nil
		}
		return fmt.Errorf("the route is not in %s", c.file)
	}
	if status == http.StatusTemporaryRedirect {
		return nil // to the path without dots, by the mux
	}
	responses := Pointer("paths", path, strings.ToLower(method), "responses")
	response, where := c.at(responses + Pointer(strconv.Itoa(status)))
	if response == nil {
		response, where = c.at(responses + Pointer("default"))
	}
	if response == nil {
		return fmt.Errorf("status %d is not in %s", status, c.file)
	}
	contents, _ := response.(map[string]any)["content"].(map[string]any)
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	if len(contents) == 0 {
		if len(body) > 0 {
			return fmt.Errorf("status %d has no body in %s", status, c.file)
		}
		return nil
	}
	if contents[media] == nil {
		return fmt.Errorf("status %d: Content-Type %q is not in %s", status, media, c.file)
	}
	switch media {
	case "application/json":
		return c.Validate(where+Pointer("content", media, "schema"), body)
	case "text/event-stream":
		return c.Events(where+Pointer("content", media, "x-events"), body)
	}
	return nil
}

// Events validates the events of a stream.
func (c *Document) Events(where string, body []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<20)
	name := ""
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "event":
			name = value
		case "data":
			if schema, _ := c.at(where + Pointer(name)); schema == nil {
				return fmt.Errorf("event %q is not in %s", name, c.file)
			}
			if err := c.Validate(where+Pointer(name), []byte(value)); err != nil {
				return fmt.Errorf("event %s: %w", name, err)
			}
		case "", "id":
		default:
			return fmt.Errorf("a stream has no %q", key)
		}
	}
	return lines.Err()
}

// Has reports whether the document has a route for a request.
func (c *Document) Has(r *http.Request) bool {
	_, pattern := c.patterns.Handler(r)
	return pattern != ""
}

// Checked is a handler that reports every answer of next that is not in the document; requests that skip selects are left out.
func (c *Document) Checked(t testing.TB, next http.Handler, skip func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &recorded{ResponseWriter: w, status: http.StatusOK}
		asked := r.Clone(r.Context())
		next.ServeHTTP(seen, r)
		if skip(asked) {
			return
		}
		if seen.status == statusHungUp {
			return // it has no receiver
		}
		body := plain(w.Header(), seen.body.Bytes())
		if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
			body = body[:bytes.LastIndexByte(body, '\n')+1] // the client may have gone in the middle
		}
		if err := c.Answer(asked, seen.status, w.Header(), body); err != nil {
			t.Errorf("%s %s: %d: %v\n%.2000s", r.Method, r.URL, seen.status, err, body)
		}
	})
}

// plain returns the text of an answer that may be compressed, and that may end in the middle.
func plain(header http.Header, body []byte) []byte {
	if header.Get("Content-Encoding") != "gzip" {
		return body
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil
	}
	text, _ := io.ReadAll(unzipped) // what could be read before an error
	return text
}

// statusHungUp is the status of a request whose client did not wait for the answer.
const statusHungUp = 499

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
