package broker_test

import (
	"crypto/sha256"
	"encoding/hex"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/access/accesstest"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

// Tokens of a viewer and of an operator. They must appear only in requests.
const (
	veraToken = "keb_CANARY-vera"
	ottoToken = "keb_CANARY-otto"
)

// operatorRoute is a route for operators. role is the required role; empty means that the route is public.
type operatorRoute struct {
	method, path, pattern string
	role                  access.Role
	// want is the status for an authorized caller.
	want int
}

// operatorRoutes lists all routes other than those of the Open Service Broker API. None of these requests changes anything.
func operatorRoutes() []operatorRoute {
	return []operatorRoute{
		{"GET", "/runtimes", "/runtimes", access.Viewer, 200},
		{"DELETE", "/runtimes", "/runtimes", access.Viewer, 405},
		{"GET", "/info/runtimes", "/info/runtimes", access.Viewer, 200},
		{"POST", "/runtimes/i-1/deprovision-retrigger", "/runtimes/{instance_id}/deprovision-retrigger", access.Operator, 409},
		{"POST", "/runtimes/i-1/deprovision-retrigger?dry_run=true", "/runtimes/{instance_id}/deprovision-retrigger", access.Operator, 409},
		{"PUT", "/expire/service_instance/i-1", "PUT /expire/service_instance/{instance_id}", access.Operator, 400},
		{"GET", "/kubeconfig/none", "GET /kubeconfig/{instance_id}", "", 404},
		{"GET", "/kubeconfig/", "GET /kubeconfig/{$}", "", 404},
	}
}

// operatorPatterns returns the route patterns in the source code: those in functions called Register, and constants whose name
// ends in Pattern. operatorRoutes must contain all of them.
func operatorPatterns(t *testing.T) []string {
	t.Helper()
	isPattern := regexp.MustCompile(`^([A-Z]+ )?/[a-z]`)
	var found []string
	literals := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if s, err := strconv.Unquote(l.Value); err == nil && isPattern.MatchString(s) {
					found = append(found, s)
				}
			}
			return true
		})
	}
	files, err := filepath.Glob("internal/*/*.go")
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.Name == "Register" {
					literals(d)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok && strings.HasSuffix(v.Names[0].Name, "Pattern") {
						literals(v)
					}
				}
			}
		}
	}
	return found
}

func TestOperatorRoutes_EveryPattern_IsListed(t *testing.T) {
	t.Parallel()
	found := operatorPatterns(t)
	if len(found) < 5 {
		t.Errorf("only %q are found", found)
	}
	for _, pattern := range found {
		if !slices.ContainsFunc(operatorRoutes(), func(r operatorRoute) bool { return r.pattern == pattern }) {
			t.Errorf("%s: who may use it? Add it to operatorRoutes", pattern)
		}
	}
}

func (b *bench) accessTokens(t *testing.T, file string) {
	t.Helper()
	var text string
	for _, e := range []struct {
		name, token string
		role        access.Role
	}{{"vera", veraToken, access.Viewer}, {"otto", ottoToken, access.Operator}} {
		sum := sha256.Sum256([]byte(e.token))
		line, err := access.TokenLine(e.name, e.role, hex.EncodeToString(sum[:]))
		require.NoError(t, err)
		text += line + "\n"
	}
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

func TestOperatorRoutes_EachCaller_GetsItsRole(t *testing.T) {
	t.Parallel()
	// The clock does not advance, because a client with too many failed attempts may try again after some seconds.
	clock := testkit.NewClock(time.Now())
	issuer := accesstest.NewIssuer(t, clock.Now)
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	(*bench)(nil).accessTokens(t, file)
	b := newBenchAt(t, clock.Now, func(c *broker.Config) {
		c.Access = access.Config{
			TokensFile: file, OIDCIssuer: issuer.URL(), OIDCAudience: accesstest.Client, OIDCViewers: []string{"viewers"}, OIDCOperators: []string{"operators"},
			TrustedProxies: []string{"127.0.0.1"},
		}
	})
	b.provisioned("i-1")
	// The broker's background work has ended now, so the database does not change any more. The handler still answers.
	b.stop()
	b.prepare()
	of := func(group string) map[string]any { return map[string]any{"groups": group} }
	foreign := accesstest.NewIssuer(t, clock.Now)
	expired := of("operators")
	expired["exp"] = clock.Now().Add(-time.Minute).Unix()
	callers := []struct {
		name, authorization string
		role                access.Role
		known               bool
	}{
		{name: "no credentials"},
		{name: "a bad token", authorization: "Bearer keb_CANARY-bad"},
		{name: "a bad password", authorization: "Basic a2ViOmtlYg=="},
		{name: "the platform", authorization: "platform", role: access.Operator, known: true},
		{name: "vera", authorization: "Bearer " + veraToken, role: access.Viewer, known: true},
		{name: "otto", authorization: "Bearer " + ottoToken, role: access.Operator, known: true},
		{name: "a viewer of the issuer", authorization: "Bearer " + issuer.Token(of("viewers")), role: access.Viewer, known: true},
		{name: "an operator of the issuer", authorization: "Bearer " + issuer.Token(of("operators")), role: access.Operator, known: true},
		{name: "a user of the issuer without a role", authorization: "Bearer " + issuer.Token(of("others")), known: true},
		{name: "an expired token", authorization: "Bearer " + issuer.Token(expired)},
		{name: "a token of another issuer", authorization: "Bearer " + foreign.Token(of("operators"))},
		{name: "a token without signature", authorization: "Bearer " + issuer.Unsigned(of("operators"))},
	}
	content := func() string {
		var text string
		if err := b.db.Get(&text, `SELECT md5(COALESCE(string_agg(t::text, ',' ORDER BY t::text), '')) FROM (
SELECT i::text FROM broker.instances i UNION ALL SELECT o::text FROM broker.operations o) AS t`); err != nil {
			t.Fatal(err)
		}
		for _, spec := range event.Streams() {
			stream, err := b.bus.JetStream().Stream(t.Context(), string(spec.Name))
			require.NoError(t, err)
			text += " " + strconv.FormatUint(stream.CachedInfo().State.LastSeq, 10)
		}
		return text
	}
	before, limited := content(), 0
	for _, r := range operatorRoutes() {
		for _, c := range callers {
			want := r.want
			switch {
			case r.role == "" || c.role.Includes(r.role):
			case c.known:
				want = http.StatusForbidden
			default:
				want = http.StatusUnauthorized
			}
			var header []string
			if c.authorization != "platform" {
				header = []string{"Authorization", c.authorization}
			}
			a := b.send(r.method, r.path, nil, header...)
			if a.status == http.StatusTooManyRequests && want == http.StatusUnauthorized {
				if a.header.Get("Retry-After") == "" {
					t.Errorf("%s %s: 429 without Retry-After", r.method, r.path)
				}
				limited++
				continue // the same role, from an address with too many failed attempts
			}
			if a.status != want {
				t.Errorf("%s %s by %s: %d %s, want %d", r.method, r.path, c.name, a.status, a.raw, want)
			}
			if asks := a.header.Get("WWW-Authenticate"); (a.status == 401) != (strings.Contains(asks, "Basic") && strings.Contains(asks, "Bearer")) {
				t.Errorf("%s %s by %s: WWW-Authenticate %q", r.method, r.path, c.name, asks)
			}
			if strings.Contains(a.raw, "CANARY") {
				t.Errorf("%s %s by %s: the answer has the token", r.method, r.path, c.name)
			}
		}
	}
	if limited == 0 {
		t.Error("no address has failed too often")
	}
	for _, r := range operatorRoutes() {
		a := b.send(r.method, r.path, nil, "Origin", "https://evil.example.org", "Sec-Fetch-Site", "cross-site")
		want := r.want
		if r.method != http.MethodGet {
			want = http.StatusForbidden
		}
		if a.status != want {
			t.Errorf("%s %s by a page of another site, with the platform's credentials: %d %s, want %d", r.method, r.path, a.status, a.raw, want)
		}
	}
	// An access token is for operators, not for platforms.
	for n, c := range callers {
		if c.name == "the platform" {
			continue
		}
		for _, path := range []string{"/v2/catalog", "/v2/service_instances/i-1"} {
			// Each caller has its own address, without failed attempts.
			addr := "192.0.2." + strconv.Itoa(n)
			if a := b.send(http.MethodGet, path, nil, "Authorization", c.authorization, "X-Forwarded-For", addr); a.status != http.StatusUnauthorized {
				t.Errorf("%s by %s: %d", path, c.name, a.status)
			}
		}
	}
	if diff := cmp.Diff(before, content()); diff != "" {
		t.Errorf("something has changed (-before +after)\n%s", diff)
	}
	if strings.Contains(b.log.String(), "keb_CANARY") {
		t.Error("the log has a token")
	}
}

func TestAccess_IssuerIsDown_OtherCredentialsWork(t *testing.T) {
	t.Parallel()
	issuer := accesstest.NewIssuer(t, time.Now)
	issuer.Down(true)
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	(*bench)(nil).accessTokens(t, file)
	b := newBench(t, func(c *broker.Config) {
		c.Access = access.Config{TokensFile: file, OIDCIssuer: issuer.URL(), OIDCAudience: accesstest.Client, OIDCViewers: []string{"viewers"}}
	})
	token := "Bearer " + issuer.Token(map[string]any{"groups": "viewers"})
	for name, tc := range map[string]struct {
		header []string
		want   int
	}{
		"the platform": {nil, 200}, "vera": {[]string{"Authorization", "Bearer " + veraToken}, 200}, "a viewer of the issuer": {[]string{"Authorization", token}, 503},
	} {
		if a := b.send(http.MethodGet, "/runtimes", nil, tc.header...); a.status != tc.want {
			t.Errorf("%s: %d %s, want %d", name, a.status, a.raw, tc.want)
		}
	}
}

func TestClientLimit_TooManyRequests_Returns429(t *testing.T) {
	t.Parallel()
	b := newBenchAt(t, testkit.NewClock(time.Now()).Now, func(c *broker.Config) {
		c.Access.Clients, c.Access.TrustedProxies = access.ClientLimits{Rate: 1, Burst: 3}, []string{"127.0.0.1"}
	})
	limited := 0
	for range 20 {
		for _, path := range []string{"/v2/catalog", "/runtimes"} {
			a := b.send(http.MethodGet, path, nil, "X-Forwarded-For", "192.0.2.1")
			if a.status != http.StatusTooManyRequests {
				continue
			}
			limited++
			if a.header.Get("Retry-After") == "" || !strings.Contains(a.raw, `"description":"too many requests from your address`) {
				t.Errorf("%s: %v %s", path, a.header, a.raw)
			}
		}
	}
	if limited != 37 {
		t.Errorf("%d of 40 requests are refused, want all but 3", limited)
	}
	b.expect("another platform", b.send(http.MethodGet, "/v2/catalog", nil, "X-Forwarded-For", "192.0.2.2"), http.StatusOK)
}
