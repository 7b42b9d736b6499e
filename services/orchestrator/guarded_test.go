package orchestrator_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/access/accesstest"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// Tokens of the callers in these tests. They must occur only in requests.
const (
	veraToken = "keb_CANARY-vera"
	ottoToken = "keb_CANARY-otto"
)

// guarded is a system with access control: vera is a viewer, otto an operator, and there is an issuer.
type guarded struct {
	*system
	issuer *accesstest.Issuer
	logged *testkit.Log
	tokens string
}

func tokenLine(t *testing.T, name string, role access.Role, token string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(token))
	line, err := access.TokenLine(name, role, hex.EncodeToString(sum[:]))
	require.NoError(t, err)
	return line + "\n"
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{system: newSystem(t), issuer: accesstest.NewIssuer(t, time.Now), logged: &testkit.Log{}, tokens: filepath.Join(t.TempDir(), "tokens.yaml")}
	g.log = g.logged.Logger()
	g.registry = prometheus.NewRegistry()
	g.writeTokens(tokenLine(t, "vera", access.Viewer, veraToken) + tokenLine(t, "otto", access.Operator, ottoToken))
	// The issuer redirects browsers to the address, so it must be known before the handler.
	g.api = httptest.NewUnstartedServer(nil)
	g.cfg.PublicURL = "http://" + g.api.Listener.Addr().String()
	g.cfg.Access = access.Config{
		TokensFile: g.tokens, OIDCIssuer: g.issuer.URL(), OIDCAudience: accesstest.Client, OIDCClientSecret: accesstest.Secret,
		OIDCViewers: []string{"viewers"}, OIDCOperators: []string{"operators"},
	}
	g.issuer.Redirect(g.cfg.PublicURL + "/console/login/oidc/callback")
	return g
}

func (g *guarded) writeTokens(text string) {
	g.t.Helper()
	require.NoError(g.t, os.WriteFile(g.tokens+".next", []byte(text), 0o600))
	require.NoError(g.t, os.Rename(g.tokens+".next", g.tokens))
}

// failed returns an operation that has failed. After it, nothing changes unless a request changes it.
func (g *guarded) failed() event.Operation {
	g.t.Helper()
	g.script.set("Second", failing)
	op := operation(event.Provision, "i-"+uuid.NewString(), "azure")
	g.request(op)
	g.await(op, event.Failed)
	return op
}

// caller adds the credentials of a caller to a request.
type caller func(r *http.Request)

func bearer(token string) caller {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func cookie(c *http.Cookie) caller {
	return func(r *http.Request) { r.AddCookie(c) }
}

// fromAnotherSite adds the headers of a request that a page of another site makes a browser send.
func fromAnotherSite(c caller) caller {
	return func(r *http.Request) {
		c(r)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Origin", "https://evil.example.org")
	}
}

// fromAnOldBrowser is the same for a browser without Sec-Fetch-Site.
func fromAnOldBrowser(c caller) caller {
	return func(r *http.Request) {
		c(r)
		r.Header.Set("Origin", "https://evil.example.org")
	}
}

func nobody(*http.Request) {}

// route is a request to a route.
type route struct {
	pattern string
	// target is the path and query; the path of the pattern if empty.
	target            string
	contentType, body string
	// role is the required role; empty if none is required.
	role access.Role
	// want is the status for an authorized caller.
	want int
}

// send sends a request and returns the status and the error of the answer. It does not read streams, because they do not end.
func (g *guarded) send(rt route, c caller) (int, http.Header, string) {
	g.t.Helper()
	method, path, _ := strings.Cut(rt.pattern, " ")
	target := rt.target
	if target == "" {
		target = path
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, g.api.URL+target, strings.NewReader(rt.body))
	require.NoError(g.t, err)
	if rt.contentType != "" {
		r.Header.Set("Content-Type", rt.contentType)
	}
	c(r)
	client := *g.api.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(r)
	require.NoErrorf(g.t, err, "%s", rt.pattern)
	defer response.Body.Close()
	var body struct{ Error string }
	if response.StatusCode >= http.StatusBadRequest {
		text, err := io.ReadAll(response.Body)
		require.NoError(g.t, err)
		if json.Unmarshal(text, &body) != nil {
			body.Error = string(text)
		}
	}
	return response.StatusCode, response.Header, body.Error
}

const (
	jsonBody = "application/json"
	formBody = "application/x-www-form-urlencoded"
)

// snapshot returns the content of the database without the records of actions, and the last message of every stream.
func (g *guarded) snapshot() map[string]string {
	g.t.Helper()
	state := map[string]string{}
	var tables []string
	require.NoError(g.t, g.db.Select(&tables, `SELECT table_name FROM information_schema.tables WHERE table_schema = 'orchestrator' AND table_name <> 'actions'`))
	for _, table := range tables {
		var content string
		require.NoError(g.t, g.db.Get(&content, `SELECT count(*) || ' rows, ' || COALESCE(md5(string_agg(t::text, ',' ORDER BY t::text)), '') FROM orchestrator.`+table+` t`))
		state[table] = content
	}
	for _, spec := range event.Streams() {
		stream, err := g.bus.JetStream().Stream(g.t.Context(), string(spec.Name))
		require.NoError(g.t, err)
		state[string(spec.Name)] = fmt.Sprint(stream.CachedInfo().State.LastSeq)
		if spec.Name != event.StreamCommands {
			continue
		}
		// Readiness stores probes among the commands. They expire.
		info, err := stream.Info(g.t.Context(), jetstream.WithSubjectFilter(">"))
		require.NoError(g.t, err)
		delete(info.State.Subjects, event.ProbeSubject())
		state[string(spec.Name)] = fmt.Sprint(info.State.Subjects)
	}
	return state
}

// session logs a browser in with a token and returns the cookie.
func (g *guarded) session(token string) *http.Cookie {
	g.t.Helper()
	response, err := g.api.Client().Post(g.api.URL+"/console/login", jsonBody, strings.NewReader(`{"token":"`+token+`"}`))
	require.NoError(g.t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || len(response.Cookies()) != 1 {
		g.t.Fatalf("log in: %s, %d cookies", response.Status, len(response.Cookies()))
	}
	return response.Cookies()[0]
}
