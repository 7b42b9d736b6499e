package landscape_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/testkit"
)

// childEnv makes the test binary run a landscape process, for tests that kill it.
const childEnv = "LANDSCAPE_TEST_CHILD_DATA_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		runChild(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func newClock() *testkit.Clock { return testkit.NewClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) }

// world is a landscape behind real HTTP.
type world struct {
	t     testing.TB
	url   string
	clock *testkit.Clock
	http  *http.Client
	close func()
}

const (
	clusterTime   = time.Minute
	reconcileTime = 40 * time.Second
)

func setup(t testing.TB) *world {
	t.Helper()
	return open(t, t.TempDir(), newClock())
}

func open(t testing.TB, dir string, c *testkit.Clock) *world {
	t.Helper()
	return openWith(t, landscape.Config{
		DataDir: dir, ClusterTime: clusterTime, ReconcileTime: reconcileTime, Bindings: 5, DirectorLookUp: true,
	}, c)
}

func openWith(t testing.TB, cfg landscape.Config, c *testkit.Clock) *world {
	t.Helper()
	l, err := landscape.New(cfg, landscape.Deps{Now: c.Now})
	require.NoError(t, err)
	server := httptest.NewServer(l.Handler())
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	w := &world{t: t, url: server.URL, clock: c, http: &http.Client{Transport: transport}}
	w.close = sync.OnceFunc(func() {
		transport.CloseIdleConnections()
		server.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := l.Run(ctx); err != nil {
			t.Errorf("run landscape: %v", err)
		}
	})
	t.Cleanup(w.close)
	return w
}

type option func(*http.Request)

func bearer(token string) option {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func header(key, value string) option {
	return func(r *http.Request) { r.Header.Set(key, value) }
}

func basic(user, password string) option {
	return func(r *http.Request) { r.SetBasicAuth(user, password) }
}

// call sends body (a string unchanged, nothing for nil, anything else as JSON) and returns the status and the body.
func (w *world) call(method, path string, body any, options ...option) (int, []byte) {
	w.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		require.NoError(w.t, err)
		reader = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, reader)
	require.NoError(w.t, err)
	r.Header.Set("Content-Type", "application/json")
	for _, o := range options {
		o(r)
	}
	resp, err := w.http.Do(r)
	require.NoError(w.t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return resp.StatusCode, raw
}

// must makes a call, fails the test for any other status, and decodes the answer.
func (w *world) must(status int, method, path string, body any, options ...option) map[string]any {
	w.t.Helper()
	got, raw := w.call(method, path, body, options...)
	if got != status {
		w.t.Fatalf("%s %s answered %d, want %d: %s", method, path, got, status, raw)
	}
	var out map[string]any
	if len(raw) > 0 && raw[0] == '{' {
		require.NoError(w.t, json.Unmarshal(raw, &out))
	}
	return out
}

// at returns a value of decoded JSON by member names and list indexes.
func at(t testing.TB, v any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				t.Fatalf("no member %q in %v", p, v)
			}
			v = m[p]
		case int:
			l, ok := v.([]any)
			if !ok || len(l) <= p {
				t.Fatalf("no item %d in %v", p, v)
			}
			v = l[p]
		}
	}
	return v
}

func text(t testing.TB, v any, path ...any) string {
	t.Helper()
	s, ok := at(t, v, path...).(string)
	if !ok {
		t.Fatalf("%v of %v is no text", path, v)
	}
	return s
}

func (w *world) avsToken() option {
	w.t.Helper()
	got := w.must(200, "POST", "/avs/oauth2/token", "grant_type=password&username=keb&password=keb", basic("keb", ""), header("Content-Type", "application/x-www-form-urlencoded"))
	return bearer(text(w.t, got, "access_token"))
}

func (w *world) clientToken(path, client string) option {
	w.t.Helper()
	form := "grant_type=client_credentials"
	switch {
	case strings.HasPrefix(path, "/edp/"):
		form += "&scope=edp-namespace.read+edp-namespace.update"
	case strings.HasPrefix(path, "/director/"):
		form += "&scope=runtime:read+runtime:write"
	}
	got := w.must(200, "POST", path, form, basic(url.QueryEscape(client), "keb"), header("Content-Type", "application/x-www-form-urlencoded"))
	return bearer(text(w.t, got, "access_token"))
}

// violations returns the problems of the requests that violated a system's contract, the oldest first.
func (w *world) violations(system string) []string {
	w.t.Helper()
	got := w.must(200, "GET", "/admin/systems/"+system, nil)
	var problems []string
	for _, v := range at(w.t, got, "violations", "last").([]any) {
		problems = append(problems, text(w.t, v, "problem"))
	}
	return problems
}

// violates makes a call that must have that status, and must be recorded as one more violation with that problem.
func (w *world) violates(system, problem string, status int, method, path string, body any, options ...option) {
	w.t.Helper()
	before := len(w.violations(system))
	w.must(status, method, path, body, options...)
	if got := w.violations(system); len(got) != before+1 || !strings.Contains(got[before], problem) {
		w.t.Errorf("%s %s: violations %q, want %q as number %d", method, path, got, problem, before+1)
	}
}

// held returns the current and the total number of a system's objects of a kind.
func (w *world) held(system, kind string) (now, ever int) {
	w.t.Helper()
	got := w.must(200, "GET", "/admin/systems/"+system, nil)
	n, _ := at(w.t, got, "objects", kind).(float64)
	e, _ := at(w.t, got, "created", kind).(float64)
	return int(n), int(e)
}
