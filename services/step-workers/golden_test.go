package stepworkers_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kyma-project/keb/libs/testkit"
)

// request is one whole request to a system, as a golden file shows it.
type request struct {
	path string

	// Request is the method and the path with its query.
	Request string            `json:"request"`
	Header  map[string]string `json:"header,omitempty"`
	// Body is the decoded JSON, or the text of any other body.
	Body any `json:"body,omitempty"`
}

// shownHeaders are those that contracts speak of. Of credentials only the scheme is shown.
var shownHeaders = []string{"Authorization", "Content-Type", "Sub-Account", "Tenant", "User-Agent", "X-Lms-Token"}

func (d *door) record(r *http.Request, body []byte) {
	seen := request{path: r.URL.Path, Request: r.Method + " " + r.URL.RequestURI(), Header: map[string]string{}}
	for _, name := range shownHeaders {
		value := r.Header.Get(name)
		switch {
		case value == "", strings.HasPrefix(value, "Go-http-client"), strings.Contains(value, " kubernetes/"):
			continue
		case name == "Authorization":
			value, _, _ = strings.Cut(value, " ")
		case name == "X-Lms-Token":
			value = "***"
		}
		seen.Header[name] = value
	}
	if len(body) > 0 {
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.UseNumber()
		if err := dec.Decode(&seen.Body); err != nil {
			seen.Body = string(body)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, seen)
}

// golden compares all requests since the last call of golden or since the start, whose path begins with one of the prefixes,
// with testdata/golden/<name>.json. The address of the landscape is replaced by http://landscape, and what w.named names.
func (w *world) golden(name string, prefixes ...string) {
	w.t.Helper()
	w.door.mu.Lock()
	defer w.door.mu.Unlock()
	shown := slices.DeleteFunc(w.door.requests, func(r request) bool {
		return !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(r.path, prefix) })
	})
	w.door.requests = nil
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(shown); err != nil {
		w.t.Fatal(err)
	}
	text := strings.ReplaceAll(b.String(), w.url, "http://landscape")
	if w.hidden != nil {
		text = w.hidden.ReplaceAllString(text, `"TIME"`)
	}
	for id, name := range w.named {
		text = strings.ReplaceAll(text, id, name)
	}
	testkit.Golden(w.t, filepath.Join("testdata", "golden", name+".json"), []byte(text))
}
