package contract_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/landscape/internal/contract"
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var schema = contract.MustSchema([]byte(`{
	"type": "object", "additionalProperties": false, "required": ["name", "size"],
	"properties": {"name": {"type": "string", "maxLength": 5}, "size": {"type": "integer"}, "kind": {"enum": ["A", "B"]}}
}`))

func TestBody_InvalidBody_NamesEveryMember(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ body, want string }{
		"valid":          {`{"name": "a", "size": 1}`, ""},
		"missing":        {`{"name": "a"}`, "body: required: size"},
		"unknown":        {`{"name": "a", "size": 1, "more": true}`, "body: unknown: more"},
		"other case":     {`{"Name": "a", "size": 1}`, "body: required: name; body: unknown: Name"},
		"type":           {`{"name": "a", "size": "1"}`, "size: must be integer, not string"},
		"several":        {`{"name": "secret", "size": 1, "kind": "C"}`, "kind: must be one of [A B]; name: must have at most 5 characters"},
		"no JSON":        {`{`, "body: not one JSON value"},
		"trailing value": {`{"name": "a", "size": 1} {}`, "body: not one JSON value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			book := contract.NewBook(func() time.Time { return created })
			r := book.Attach(httptest.NewRequest(http.MethodPost, "/things?x=1", strings.NewReader(tc.body)))
			_, err := schema.Body(r, 1000)
			want := contract.Record{Last: []contract.Entry{}}
			if tc.want != "" {
				want = contract.Record{Count: 1, Last: []contract.Entry{{Time: created, Request: "POST /things?x=1", Problem: tc.want}}}
				if err == nil {
					t.Error("the body was accepted")
				}
			} else if err != nil {
				t.Errorf("the body was refused: %v", err)
			}
			if diff := cmp.Diff(want, book.Record()); diff != "" {
				t.Errorf("the record differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBook_ManyEntries_DropsOldest(t *testing.T) {
	t.Parallel()
	book := contract.NewBook(time.Now)
	var saved contract.Record
	book.Restore(contract.Record{Count: 3}, func(r contract.Record) { saved = r })
	for n := range contract.Kept + 2 {
		contract.Violation(book.Attach(httptest.NewRequest(http.MethodGet, fmt.Sprint("/", n), nil)), "no such route")
	}
	if saved.Count != 25 || len(saved.Last) != contract.Kept || saved.Last[0].Request != "GET /2" {
		t.Errorf("saved are %d, the last %d from %v on", saved.Count, len(saved.Last), saved.Last)
	}
}

func TestQuery_UnknownParameter_IsViolation(t *testing.T) {
	t.Parallel()
	book := contract.NewBook(time.Now)
	r := book.Attach(httptest.NewRequest(http.MethodGet, "/things?name=a&page=1&page=2", nil))
	if err := contract.Query(r, "page"); err == nil || err.Error() != "query parameter name: unknown; query parameter page: given more than once" {
		t.Errorf("the error is %v", err)
	}
	if n := book.Record().Count; n != 1 {
		t.Errorf("%d violations are recorded, want 1", n)
	}
}
