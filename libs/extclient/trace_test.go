package extclient_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/tracing"
)

// step creates the context of a step, with the span of the execution.
func step(t *testing.T, call func(*testing.T, *extclient.Client, *http.Request) error, url string) ([]sdk.ReadOnlySpan, error) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	ctx, execution := tracing.TracerOf(tracing.NewProvider(spans), "x").Start(t.Context(), "execution")
	tokens := extclient.ClientCredentials(extclient.TokenConfig{URL: url + "/token", ClientID: "id", ClientSecret: "s3cr3t"}, extclient.Deps{})
	c, err := extclient.New(extclient.Config{System: "avs", BaseURL: url + "/api"}, tokens, extclient.Deps{})
	require.NoError(t, err)
	err = call(t, c, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	execution.End()
	ended := spans.Ended()
	return ended[:len(ended)-1], err
}

func attributesOf(s sdk.ReadOnlySpan) map[string]string {
	m := map[string]string{}
	for _, a := range s.Attributes() {
		m[string(a.Key)] = a.Value.String()
	}
	return m
}

func TestTrace_Call_CreatesSpanWithoutSecrets(t *testing.T) {
	t.Parallel()
	var parents []string
	refused := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parents = append(parents, r.Header.Get("Traceparent"))
		switch {
		case r.URL.Path == "/token":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"access_token": "s3cr3t", "token_type": "bearer"}`))
		case !refused:
			refused = true
			w.WriteHeader(http.StatusUnauthorized)
		default:
			_, _ = w.Write([]byte(`{}`))
		}
	}))
	defer server.Close()
	spans, err := step(t, func(_ *testing.T, c *extclient.Client, r *http.Request) error {
		return c.Do(r.Context(), extclient.Request{
			Method: http.MethodPost, Route: "/evaluations/{id}", Params: []string{"7"}, Query: map[string][]string{"key": {"s3cr3t"}},
			Body: map[string]string{"password": "s3cr3t"},
		}, nil)
	}, server.URL)
	require.NoError(t, err)
	want := []struct{ name, status, repeated string }{
		{"POST token", "200", ""}, {"POST /evaluations/{id}", "401", ""}, {"POST token", "200", ""}, {"POST /evaluations/{id}", "200", "1"},
	}
	if len(spans) != len(want) {
		t.Fatalf("there are %d spans", len(spans))
	}
	for i, s := range spans {
		a := attributesOf(s)
		if s.Name() != want[i].name || a["http.response.status_code"] != want[i].status || a["http.request.resend_count"] != want[i].repeated {
			t.Errorf("span %d is %q with %v", i, s.Name(), a)
		}
		if !strings.Contains(parents[i], s.SpanContext().SpanID().String()) {
			t.Errorf("the system receives the trace %q, the span is %s", parents[i], s.SpanContext().SpanID())
		}
		for key, value := range a {
			if strings.Contains(value, "s3cr3t") {
				t.Errorf("%s is %q", key, value)
			}
		}
	}
	last := attributesOf(spans[3])
	if last["keb.system"] != "avs" || last["url.full"] != server.URL+"/api/evaluations/7" || last["http.request.method"] != "POST" {
		t.Errorf("attributes are %v", last)
	}
}

func TestTrace_FailedAndPausedCalls_AreDistinct(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"access_token": "x", "token_type": "bearer"}`))
			return
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer server.Close()
	var paused error
	spans, _ := step(t, func(_ *testing.T, c *extclient.Client, r *http.Request) error {
		for range 11 {
			paused = c.Do(r.Context(), extclient.Request{Method: http.MethodGet}, nil)
		}
		return nil
	}, server.URL)
	if !errors.Is(paused, extclient.ErrOpen) {
		t.Errorf("the last call: %v", paused)
	}
	calls := 0
	for _, s := range spans {
		if s.Name() == "GET avs" {
			calls++
			if s.Status().Code != codes.Error {
				t.Errorf("the span of a 502 has status %v", s.Status())
			}
		}
	}
	if calls != 10 {
		t.Errorf("there are %d spans of 10 calls", calls)
	}
	server.Close()
	spans, err := step(t, func(_ *testing.T, c *extclient.Client, r *http.Request) error {
		return c.Do(r.Context(), extclient.Request{Method: http.MethodGet}, nil)
	}, server.URL)
	if err == nil || len(spans) != 1 || attributesOf(spans[0])["error.type"] != "no connection" {
		t.Errorf("%d spans, %v", len(spans), err)
	}
}

func TestTrace_NoRecordedSpan_CreatesNone(t *testing.T) {
	t.Parallel()
	var parent string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { parent = r.Header.Get("Traceparent") }))
	defer server.Close()
	client := &http.Client{Transport: extclient.Trace("gardener", func(*http.Request) string { return "/shoots/{name}" }, server.Client().Transport)}
	spans := tracetest.NewSpanRecorder()
	get := func(r *http.Request) {
		t.Helper()
		response, err := client.Do(r)
		require.NoError(t, err)
		_ = response.Body.Close()
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/shoots/c-1", nil)
	require.NoError(t, err)
	get(request)
	if parent != "" || len(spans.Ended()) != 0 {
		t.Errorf("without a span the system receives %q", parent)
	}
	ctx, execution := tracing.TracerOf(tracing.NewProvider(spans), "x").Start(t.Context(), "execution")
	get(request.WithContext(ctx))
	execution.End()
	s := spans.Ended()[0]
	if s.Name() != "GET /shoots/{name}" || attributesOf(s)["keb.system"] != "gardener" || !strings.Contains(parent, s.SpanContext().SpanID().String()) {
		t.Errorf("span %q, the system receives %q", s.Name(), parent)
	}
}
