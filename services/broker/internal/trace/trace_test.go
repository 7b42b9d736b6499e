package trace_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kyma-project/keb/services/broker/internal/trace"
)

const incoming = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"

func TestTraceIsContinuedOrStarted(t *testing.T) {
	t.Parallel()
	var seen string
	h := trace.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = trace.From(r.Context()) }))
	for _, tc := range []struct {
		name, header string
		continued    bool
	}{
		{"a good one", incoming, true},
		{"none", "", false},
		{"a bad one", "00-xyz", false},
		{"zeros", "00-00000000000000000000000000000000-b7ad6b7169203331-01", false},
		{"version ff", "ff" + incoming[2:], false},
		{"more than version 00 has", incoming + "-x", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(trace.Header, tc.header)
		h.ServeHTTP(httptest.NewRecorder(), r)
		if !trace.Valid(seen) || seen == tc.header {
			t.Errorf("%s: traceparent is %q", tc.name, seen)
		}
		if got := seen[3:35] == incoming[3:35] && seen[53:] == "00"; got != tc.continued {
			t.Errorf("%s: %q, continued %t", tc.name, seen, got)
		}
	}
	if s := trace.From(context.Background()); !trace.Valid(s) {
		t.Errorf("without a request: %q", s)
	}
}

func FuzzStart(f *testing.F) {
	f.Add(incoming)
	f.Add("cc" + incoming[2:] + "-more")
	f.Fuzz(func(t *testing.T, s string) {
		if got := trace.Start(s); !trace.Valid(got) {
			t.Errorf("%q becomes %q", s, got)
		}
	})
}
