package extclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/extclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server and returns a client of it.
func serve(t *testing.T, cfg extclient.Config, tokens extclient.TokenSource, deps extclient.Deps, h http.HandlerFunc) *extclient.Client {
	t.Helper()
	server := httptest.NewServer(h)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	if deps.Transport == nil {
		deps.Transport = transport
	}
	cfg.System = "sys"
	if cfg.BaseURL == "" {
		cfg.BaseURL = server.URL + "/base"
	}
	c, err := extclient.New(cfg, tokens, deps)
	require.NoError(t, err)
	return c
}

func TestDo_Request_IsSentUnchanged(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body string
	c := serve(t, extclient.Config{Username: "u", Password: "p"}, nil, extclient.Deps{}, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		got, body = r, string(data)
		_, _ = io.WriteString(w, `{"id":7}`)
	})
	var answer struct{ ID int }
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	err := c.Do(trace.ContextWithSpanContext(t.Context(), span), extclient.Request{
		Method: http.MethodPut, Route: "/things/{id}/x", Params: []string{"a/b?c"}, Query: url.Values{"q": {"1"}},
		Header: http.Header{"Tenant": {"ga"}}, Body: map[string]int{"n": 1},
	}, &answer)
	if err != nil || answer.ID != 7 {
		t.Fatalf("answer %+v, error %v", answer, err)
	}
	user, password, _ := got.BasicAuth()
	for what, pair := range map[string][2]string{
		"path":        {got.URL.EscapedPath(), "/base/things/a%2Fb%3Fc/x"},
		"query":       {got.URL.RawQuery, "q=1"},
		"tenant":      {got.Header.Get("Tenant"), "ga"},
		"body":        {body, `{"n":1}`},
		"type":        {got.Header.Get("Content-Type"), "application/json"},
		"user":        {user + ":" + password, "u:p"},
		"traceparent": {got.Header.Get("Traceparent"), "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-00"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %q, want %q", what, pair[0], pair[1])
		}
	}
}

func TestDo_Error_ReportsTemporary(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		status    int
		body      string
		temporary bool
		text      string
	}{
		{"bad request", 400, `{"message":"no such plan"}`, false, "sys: GET /x: status 400: no such plan"},
		{"unauthorized", 401, "", false, "sys: GET /x: status 401"},
		{"not found", 404, `{"error":"gone"}`, false, "sys: GET /x: status 404: gone"},
		{"timeout", 408, "", true, "sys: GET /x: status 408"},
		{"too many", 429, "", true, "sys: GET /x: status 429"},
		{"failure", 500, "<html>boom</html>", true, "sys: GET /x: status 500"},
		{"unavailable", 503, "", true, "sys: GET /x: status 503"},
		{"another success", 202, "", true, "sys: GET /x: status 202"},
		{"redirect", 302, "", false, "sys: GET /x: status 302"},
		{"garbage", 200, "<html>", true, "sys: GET /x: unreadable answer: not the expected JSON"},
		{"other type", 200, `{"id":"seven"}`, true, "sys: GET /x: unreadable answer: id is not of the expected type int"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, extclient.Config{}, nil, extclient.Deps{}, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})
			var into struct {
				ID int `json:"id"`
			}
			err := c.Do(t.Context(), extclient.Request{Method: http.MethodGet, Route: "/x", Accept: []int{http.StatusOK}}, &into)
			if err == nil || err.Error() != test.text {
				t.Fatalf("error %v, want %s", err, test.text)
			}
			if extclient.IsTemporary(err) != test.temporary {
				t.Errorf("temporary: %v, want %v", !test.temporary, test.temporary)
			}
		})
	}
}

func TestDo_NoAnswer_TimesOut(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	c := serve(t, extclient.Config{Timeout: 50 * time.Millisecond}, nil, extclient.Deps{}, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	err := c.Do(t.Context(), extclient.Request{
		Method: http.MethodGet, Route: "/x", Query: url.Values{"key": {"secret-in-query"}},
	}, nil)
	if !extclient.IsTemporary(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that times out: %v", err)
	}
	if strings.Contains(err.Error(), "secret-in-query") {
		t.Errorf("the error shows the query: %v", err)
	}
}

func TestBreaker_FailingSystem_PausesCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, status := 0, http.StatusServiceUnavailable
		registry := prometheus.NewRegistry()
		c, err := extclient.New(extclient.Config{System: "sys", BaseURL: "http://sys.example.com", BreakAfter: 3, BreakFor: time.Minute}, nil, extclient.Deps{
			Registerer: registry,
			Transport: answering(func(r *http.Request) *http.Response {
				asked++
				return &http.Response{StatusCode: status, Body: http.NoBody, Request: r}
			}),
		})
		require.NoError(t, err)
		call := func() error { return c.Do(t.Context(), extclient.Request{Method: http.MethodGet}, nil) }
		for range 3 {
			if err := call(); !extclient.IsStatus(err, http.StatusServiceUnavailable) {
				t.Fatalf("while it is closed: %v", err)
			}
		}
		err = call()
		if !errors.Is(err, extclient.ErrOpen) || !extclient.IsTemporary(err) || !strings.Contains(err.Error(), "status 503") {
			t.Fatalf("while it is open: %v", err)
		}
		if asked != 3 {
			t.Errorf("%d calls reached the system, want 3", asked)
		}
		if n, _ := testutil.GatherAndCount(registry, "keb_external_requests_total"); n != 2 {
			t.Errorf("%d series of requests, want one for 503 and one for open", n)
		}
		status = http.StatusOK
		<-time.After(time.Minute - time.Millisecond) // the fake clock of the bubble
		if err := call(); !errors.Is(err, extclient.ErrOpen) {
			t.Errorf("before its time is over: %v", err)
		}
		<-time.After(2 * time.Millisecond)
		for range 2 {
			if err := call(); err != nil {
				t.Errorf("the breaker does not close again: %v", err)
			}
		}
	})
}

func TestBreaker_RejectedRequests_StaysClosed(t *testing.T) {
	t.Parallel()
	c := serve(t, extclient.Config{BreakAfter: 2}, nil, extclient.Deps{}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
	})
	for range 5 {
		if err := c.Do(t.Context(), extclient.Request{Method: http.MethodGet}, nil); !extclient.IsStatus(err, http.StatusNotFound) {
			t.Fatal(err)
		}
	}
}

func TestDo_AnswerTooLong_ReturnsError(t *testing.T) {
	t.Parallel()
	c := serve(t, extclient.Config{MaxAnswer: 10}, nil, extclient.Deps{}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("a", 11))
	})
	err := c.Do(t.Context(), extclient.Request{Method: http.MethodGet}, nil)
	if err == nil || !strings.Contains(err.Error(), "longer than 10 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestDo_InvalidParameter_IsNamed(t *testing.T) {
	t.Parallel()
	c := serve(t, extclient.Config{}, nil, extclient.Deps{}, func(http.ResponseWriter, *http.Request) { t.Error("the system was called") })
	for _, value := range []string{"", ".", ".."} {
		err := c.Do(t.Context(), extclient.Request{Method: http.MethodGet, Route: "/{tenant}", Params: []string{value}}, nil)
		if err == nil || extclient.IsTemporary(err) || !strings.Contains(err.Error(), "tenant") {
			t.Errorf("parameter %q: %v", value, err)
		}
	}
	if err := c.Do(t.Context(), extclient.Request{Method: http.MethodGet, Route: "/x", Params: []string{"y"}}, nil); err == nil || extclient.IsTemporary(err) {
		t.Errorf("a parameter too many: %v", err)
	}
}

func TestNew_InvalidBaseURL_IsRejected(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "localhost:80", "ftp://h", "http://", "http://u:pw-secret@"} {
		_, err := extclient.New(extclient.Config{System: "sys", BaseURL: address}, nil, extclient.Deps{})
		if err == nil || !strings.Contains(err.Error(), "sys") || strings.Contains(err.Error(), "pw-secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestNew_SharedRegistry_SharesMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	for range 2 {
		c := serve(t, extclient.Config{}, nil, extclient.Deps{Registerer: registry}, func(http.ResponseWriter, *http.Request) {})
		require.NoError(t, c.Do(t.Context(), extclient.Request{Method: http.MethodGet}, nil))
	}
	want := "# HELP keb_external_requests_total Calls to external systems by system and status code; code is \"error\" without an answer, \"open\" while paused.\n" +
		"# TYPE keb_external_requests_total counter\nkeb_external_requests_total{code=\"200\",system=\"sys\"} 2\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "keb_external_requests_total"); err != nil {
		t.Error(err)
	}
}

func TestDo_Answered_ReceivesHeader(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{"7": 7 * time.Second, "": 0, "-1": 0, "soon": 0, "999999999": 0} {
		status := http.StatusAccepted
		c := serve(t, extclient.Config{}, nil, extclient.Deps{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", value)
			w.WriteHeader(status)
		})
		var got time.Duration
		req := extclient.Request{Method: http.MethodDelete, Route: "/thing", Answered: func(code int, header http.Header) {
			if code != status {
				t.Errorf("status %d, want %d", code, status)
			}
			got = extclient.RetryAfter(header)
		}}
		if err := c.Do(t.Context(), req, nil); err != nil || got != want {
			t.Errorf("%q: %s, error %v, want %s", value, got, err, want)
		}
		status = http.StatusTooManyRequests
		err := c.Do(t.Context(), req, nil)
		if refused, ok := errors.AsType[*extclient.StatusError](err); !ok || refused.RetryAfter != want {
			t.Errorf("%q, refused: %v, want one that asks for %s", value, err, want)
		}
	}
}

func TestDo_LinkToOtherHost_IsRejected(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked.Store(r.URL.String()) }))
	defer server.Close()
	c := serve(t, extclient.Config{BaseURL: server.URL + "/base"}, nil, extclient.Deps{}, nil)
	req := extclient.Request{Method: http.MethodGet, Route: "/callback", Link: server.URL + "/elsewhere/7?x=1"}
	if err := c.Do(t.Context(), req, nil); err != nil || asked.Load() != "/elsewhere/7?x=1" {
		t.Errorf("asked %v, error %v", asked.Load(), err)
	}
	for _, link := range []string{"http://elsewhere.example/x", "/relative", "https" + strings.TrimPrefix(server.URL, "http"), "://", strings.Replace(server.URL, "//", "//u:p@", 1)} {
		req.Link = link
		err := c.Do(t.Context(), req, nil)
		if err == nil || extclient.IsTemporary(err) || strings.Contains(err.Error(), "elsewhere.example") {
			t.Errorf("%s: %v, want a permanent error without the address", link, err)
		}
	}
}

// cancelled is a cause like worker.ErrCancelled.
type cancelled struct{ bool }

func (c cancelled) Error() string   { return "the command was cancelled" }
func (c cancelled) Cancelled() bool { return c.bool }
func (c cancelled) Unwrap() error   { return context.Canceled }

func TestDo_CommandCancelled_CompletesWrites(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method string
		cause  error
		early  bool
		want   bool
	}{
		"write":                           {http.MethodPost, cancelled{true}, false, true},
		"write after the cancel":          {http.MethodPost, cancelled{true}, true, false},
		"read":                            {http.MethodGet, cancelled{true}, false, false},
		"write while the worker stops":    {http.MethodPost, cancelled{false}, false, false},
		"write with an unspecified cause": {http.MethodPost, nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, release := make(chan struct{}), make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(arrived)
				select {
				case <-release:
				case <-r.Context().Done():
				}
				_, _ = io.WriteString(w, `{"id":"made"}`)
			}))
			defer server.Close()
			client, err := extclient.New(extclient.Config{System: "avs", BaseURL: server.URL, Timeout: time.Minute}, nil, extclient.Deps{})
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			if c.early {
				cancel(c.cause)
			} else {
				go func() {
					<-arrived
					cancel(c.cause)
					if c.want {
						close(release)
					}
				}()
			}
			var answer struct{ ID string }
			err = client.Do(ctx, extclient.Request{Method: c.method, Route: "/x"}, &answer)
			if got := err == nil && answer.ID == "made"; got != c.want {
				t.Errorf("the call is completed: %v (%v), want %v", got, err, c.want)
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want that of the context", err)
			}
		})
	}
}
