package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

// A request is one JSON object and nothing behind it; an error is one line that says where.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"service_id":"a","plan_id":"b"}`, ``, `{`, `[]`, `null`, `{"service_id":1}`, `{"service_id":"a","plan_id":"b","x":1}`, `{"plan_id":"b"}`,
		`{"service_id":"a","plan_id":"b"} {}`, `{"service_id":"a","plan_id":"b"}]`, `{"service_id":"a","plan_id":"b"}x`, "{\n\"parameters\": {\"a\": }}", `{"unknown field ":1}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		r, err := readRequest("-", strings.NewReader(content))
		if (r == nil) == (err == nil) {
			t.Fatalf("request %v, error %v", r, err)
		}
		if err != nil {
			if text := err.Error(); !strings.HasPrefix(text, "standard input") || strings.ContainsAny(text, "\n\x00\x1b") {
				t.Errorf("the error is %q", text)
			}
			return
		}
		if !json.Valid([]byte(content)) || r.ServiceID == "" || r.PlanID == "" {
			t.Errorf("%q is taken for %+v", content, r)
		}
	})
}
