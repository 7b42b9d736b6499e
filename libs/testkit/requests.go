package testkit

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// Request is an HTTP request to another system, in the format of golden files.
type Request struct {
	// Path is the path without the query. Golden files contain it in Request.
	Path string `json:"-"`
	// Request is the method and the path with its query.
	Request string            `json:"request"`
	Header  map[string]string `json:"header,omitempty"`
	// Body is the decoded JSON, or the text of any other body.
	Body any `json:"body,omitempty"`
}

// shownHeaders are the headers that contracts mention. Of credentials only the scheme is shown.
var shownHeaders = []string{
	"Authorization", "Content-Type", "Sub-Account", "Tenant", "User-Agent", "X-Broker-Api-Version", "X-Lms-Token",
}

// NewRequest describes r with its body.
func NewRequest(r *http.Request, body []byte) Request {
	seen := Request{Path: r.URL.Path, Request: r.Method + " " + r.URL.RequestURI(), Header: map[string]string{}}
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
	return seen
}

// GoldenRequests compares requests with the golden file at path, like Golden. Unless it is nil, rewrite replaces the variable parts of
// the JSON text.
func GoldenRequests(t testing.TB, path string, requests []Request, rewrite func(string) string) {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(requests); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if rewrite != nil {
		text = rewrite(text)
	}
	Golden(t, path, []byte(text))
}
