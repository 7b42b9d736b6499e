package orchestrator_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/access/accesstest"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/orchestrator"
)

// Tokens of the people in these tests. They must be found nowhere but in requests.
const (
	veraToken = "keb_CANARY-vera"
	ottoToken = "keb_CANARY-otto"
)

// logBuffer is what processes log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// guarded is a system whose operator API asks who calls: vera is a viewer, otto an operator, and there is an issuer.
type guarded struct {
	*system
	issuer *accesstest.Issuer
	logged *logBuffer
	tokens string
}

func tokenLine(t *testing.T, name string, role access.Role, token string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(token))
	line, err := access.TokenLine(name, role, hex.EncodeToString(sum[:]))
	if err != nil {
		t.Fatal(err)
	}
	return line + "\n"
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{system: newSystem(t), issuer: accesstest.NewIssuer(t, time.Now), logged: &logBuffer{}, tokens: filepath.Join(t.TempDir(), "tokens.yaml")}
	g.log = slog.New(slog.NewTextHandler(g.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	g.registry = prometheus.NewRegistry()
	g.writeTokens(tokenLine(t, "vera", access.Viewer, veraToken) + tokenLine(t, "otto", access.Operator, ottoToken))
	// The address is known before what it serves: the issuer sends browsers back to it.
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
	if err := os.WriteFile(g.tokens+".next", []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
	if err := os.Rename(g.tokens+".next", g.tokens); err != nil {
		g.t.Fatal(err)
	}
}

// failed is an operation that has failed, after which nothing happens by itself.
func (g *guarded) failed() event.Operation {
	g.t.Helper()
	g.script.set("Second", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Fail(op, &worker.Error{Component: "ext", Reason: "broken", Message: "ext is broken"})
	})
	op := operation(event.Provision, "i-"+uuid.NewString(), "azure")
	g.request(op)
	g.await(op, event.Failed)
	return op
}

// caller is how a request says who sends it.
type caller func(r *http.Request)

func bearer(token string) caller {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func cookie(c *http.Cookie) caller {
	return func(r *http.Request) { r.AddCookie(c) }
}

// fromAnotherSite is how a browser marks what a page of another site makes it send.
func fromAnotherSite(c caller) caller {
	return func(r *http.Request) {
		c(r)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Origin", "https://evil.example.org")
	}
}

// fromAnOldBrowser is the same of a browser that does not know Sec-Fetch-Site.
func fromAnOldBrowser(c caller) caller {
	return func(r *http.Request) {
		c(r)
		r.Header.Set("Origin", "https://evil.example.org")
	}
}

func nobody(*http.Request) {}

// route is how a test calls a route.
type route struct {
	pattern string
	// target is what is asked for, path and query; the pattern's path if empty.
	target            string
	contentType, body string
	// role is the least that is needed; empty for everybody.
	role access.Role
	// want is the answer to who may.
	want int
}

// send sends a request and returns the status and the error of the answer. Streams are not read to their end, which they do not
// have.
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
	if err != nil {
		g.t.Fatal(err)
	}
	if rt.contentType != "" {
		r.Header.Set("Content-Type", rt.contentType)
	}
	c(r)
	client := *g.api.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(r)
	if err != nil {
		g.t.Fatalf("%s: %v", rt.pattern, err)
	}
	defer response.Body.Close()
	var body struct{ Error string }
	if response.StatusCode >= http.StatusBadRequest {
		text, err := io.ReadAll(response.Body)
		if err != nil {
			g.t.Fatal(err)
		}
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

// routes are all routes of the operator address. The ids are of operations and orchestrations that are there or are not; no route
// here does anything, so that every caller finds the same.
func routes(op string) []route {
	none := uuid.Must(uuid.NewV7()).String()
	return []route{
		{pattern: "GET /operations", role: access.Viewer, want: 200},
		{pattern: "GET /operations/{id}", target: "/operations/" + op, role: access.Viewer, want: 200},
		{pattern: "POST /operations/{id}/cancel", target: "/operations/" + op + "/cancel", role: access.Operator, want: 409},
		{pattern: "POST /operations/{id}/retry", target: "/operations/" + none + "/retry", role: access.Operator, want: 404},
		{pattern: "POST /operations/{id}/skip", target: "/operations/" + op + "/skip", body: `{"step":"Second"}`, contentType: jsonBody, role: access.Operator, want: 409},
		{pattern: "GET /processes", role: access.Viewer, want: 200},
		{pattern: "GET /workers", role: access.Viewer, want: 200},
		{pattern: "GET /me", role: access.Viewer, want: 200},
		{pattern: "GET /actions", role: access.Viewer, want: 200},
		{pattern: "GET /overview", role: access.Viewer, want: 200},
		{pattern: "GET /stuck", role: access.Viewer, want: 200},
		{pattern: "GET /throughput", role: access.Viewer, want: 200},
		{pattern: "GET /stream", role: access.Viewer, want: 503}, // by then the orchestrator has been told to stop
		{pattern: "GET /events", target: "/events?operation_ids=" + op, role: access.Viewer, want: 200},
		{pattern: "POST /upgrade/kyma", body: `{}`, contentType: jsonBody, role: access.Operator, want: 400},
		{pattern: "POST /upgrade/cluster", body: `{}`, contentType: jsonBody, role: access.Operator, want: 400},
		{pattern: "GET /orchestrations", role: access.Viewer, want: 200},
		{pattern: "GET /orchestrations/{id}", target: "/orchestrations/" + none, role: access.Viewer, want: 404},
		{pattern: "GET /orchestrations/{id}/operations", target: "/orchestrations/" + none + "/operations", role: access.Viewer, want: 404},
		{pattern: "GET /orchestrations/{id}/operations/{operation}", target: "/orchestrations/" + none + "/operations/" + none, role: access.Viewer, want: 404},
		{pattern: "PUT /orchestrations/{id}/cancel", target: "/orchestrations/" + none + "/cancel", role: access.Operator, want: 404},
		{pattern: "POST /orchestrations/{id}/retry", target: "/orchestrations/" + none + "/retry", contentType: formBody, role: access.Operator, want: 404},
		{pattern: "GET /{$}", target: "/", want: 303},
		{pattern: "GET /console/", want: 200},
		{pattern: "GET /console/login/methods", want: 200},
		{pattern: "POST /console/login", body: `{"token":""}`, contentType: jsonBody, want: 400},
		{pattern: "POST /console/logout", want: 204},
		{pattern: "GET /console/login/oidc", want: 303},
		{pattern: "GET /console/login/oidc/callback", want: 401},
		{pattern: "GET /healthz", want: 200},
		{pattern: "GET /readyz", want: 200},
		{pattern: "GET /metrics", want: 200},
	}
}

// registered finds the routes that the code adds to a mux: in the text of the program, for a mux does not tell.
func registered(t *testing.T) []string {
	t.Helper()
	files := token.NewFileSet()
	program := map[string]*ast.File{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		program[path], err = parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	constants := constantsOf(program)
	found := map[string]bool{}
	for path, file := range program {
		if filepath.Dir(path) == "internal/console" {
			continue // what is below its own route
		}
		ast.Inspect(file, func(n ast.Node) bool {
			argument := patternOf(n)
			if in, ok := argument.(*ast.Ident); argument == nil || ok && in.Name == "pattern" { // the body of acts
				return true
			}
			pattern, ok := text(argument, file.Name.Name, constants)
			if !ok {
				t.Errorf("%s: write the pattern with strings and constants, so that this test can read it", files.Position(n.Pos()))
				return true
			}
			if pattern != "/" { // where the API is mounted; what it has no route for is tested by itself
				found[pattern] = true
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(found))
}

// patternOf is the pattern in a call that adds a route, nil in all others.
func patternOf(n ast.Node) ast.Expr {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	switch {
	case !ok:
	case f.Sel.Name == "acts" && len(call.Args) == 4:
		return call.Args[1]
	case (f.Sel.Name == "Handle" || f.Sel.Name == "HandleFunc") && len(call.Args) == 2:
		return call.Args[0]
	}
	return nil
}

// constantsOf are the string constants of packages, by "package.name".
func constantsOf(program map[string]*ast.File) map[string]ast.Expr {
	found := map[string]ast.Expr{}
	for _, file := range program {
		for _, d := range file.Decls {
			general, ok := d.(*ast.GenDecl)
			if !ok || general.Tok != token.CONST {
				continue
			}
			for _, s := range general.Specs {
				spec, ok := s.(*ast.ValueSpec)
				if !ok {
					continue
				}
				for i, name := range spec.Names {
					if i < len(spec.Values) {
						found[file.Name.Name+"."+name.Name] = spec.Values[i]
					}
				}
			}
		}
	}
	return found
}

// text is the value of a pattern in a package.
func text(e ast.Expr, in string, constants map[string]ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		left, ok := text(e.X, in, constants)
		right, also := text(e.Y, in, constants)
		return left + right, ok && also && e.Op == token.ADD
	case *ast.Ident:
		value, ok := constants[in+"."+e.Name]
		if !ok {
			return "", false
		}
		return text(value, in, constants)
	case *ast.SelectorExpr:
		if other, ok := e.X.(*ast.Ident); ok {
			return text(e.Sel, other.Name, constants)
		}
	}
	return "", false
}

// described are the routes of the OpenAPI document.
func described(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]yaml.Node `yaml:"paths"`
	}
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	var found []string
	for path, methods := range document.Paths {
		for method := range methods {
			if method != "parameters" {
				found = append(found, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(found)
	return found
}

func TestEveryRouteSaysWhoMayUseIt(t *testing.T) {
	t.Parallel()
	known := map[string]route{}
	for _, rt := range routes("x") {
		known[rt.pattern] = rt
	}
	for _, pattern := range slices.Concat(registered(t), described(t)) {
		rt, ok := known[pattern]
		if !ok && !strings.Contains(pattern, " ") {
			rt, ok = known["GET "+pattern]
		}
		if !ok {
			t.Errorf("%s: who may use it? Add it to routes in access_test.go", pattern)
			continue
		}
		reads := strings.HasPrefix(rt.pattern, "GET ")
		if rt.role != "" && reads != (rt.role == access.Viewer) {
			t.Errorf("%s: needs the role %s", pattern, rt.role)
		}
	}
}

// snapshot is the content of the database without the record of actions, and the last message of every stream.
func (g *guarded) snapshot() map[string]string {
	g.t.Helper()
	state := map[string]string{}
	var tables []string
	if err := g.db.Select(&tables, `SELECT table_name FROM information_schema.tables WHERE table_schema = 'orchestrator' AND table_name <> 'actions'`); err != nil {
		g.t.Fatal(err)
	}
	for _, table := range tables {
		var content string
		if err := g.db.Get(&content, `SELECT count(*) || ' rows, ' || COALESCE(md5(string_agg(t::text, ',' ORDER BY t::text)), '') FROM orchestrator.`+table+` t`); err != nil {
			g.t.Fatal(err)
		}
		state[table] = content
	}
	for _, spec := range event.Streams() {
		stream, err := g.bus.JetStream().Stream(g.t.Context(), string(spec.Name))
		if err != nil {
			g.t.Fatal(err)
		}
		state[string(spec.Name)] = fmt.Sprint(stream.CachedInfo().State.LastSeq)
	}
	return state
}

// session logs a browser in with a token and returns its cookie.
func (g *guarded) session(token string) *http.Cookie {
	g.t.Helper()
	response, err := g.api.Client().Post(g.api.URL+"/console/login", jsonBody, strings.NewReader(`{"token":"`+token+`"}`))
	if err != nil {
		g.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || len(response.Cookies()) != 1 {
		g.t.Fatalf("log in: %s, %d cookies", response.Status, len(response.Cookies()))
	}
	return response.Cookies()[0]
}

func TestWhoMayDoWhat(t *testing.T) {
	g := newGuarded(t)
	o := g.orchestrator()
	alpha, beta := g.worker("alpha"), g.worker("beta")
	op := g.failed()
	alpha.stop()
	beta.stop()
	vera, otto := g.session(veraToken), g.session(ottoToken)
	// Nothing moves now but what the requests do.
	o.stop()

	groups := func(names ...string) map[string]any {
		return map[string]any{"groups": names, "preferred_username": "jane"}
	}
	spoiled := func(key string, value any) string {
		claims := groups("operators")
		claims[key] = value
		return g.issuer.Token(claims)
	}
	foreign := accesstest.NewIssuer(t, time.Now)
	cut := *otto
	cut.Value = cut.Value[:len(cut.Value)-3]
	callers := []struct {
		name string
		send caller
		role access.Role
		// unknown is the answer to who is not known; who is known and may not gets 403.
		unknown int
		// foreign is refused whatever it is, unless it only reads.
		foreign bool
	}{
		{name: "nobody", send: nobody, unknown: 401},
		{name: "a bad token", send: bearer("keb_CANARY-bad"), unknown: 401},
		{name: "the platform", send: func(r *http.Request) { r.SetBasicAuth("keb", "keb") }, unknown: 401},
		{name: "vera's token", send: bearer(veraToken), role: access.Viewer},
		{name: "otto's token", send: bearer(ottoToken), role: access.Operator},
		{name: "a viewer of the issuer", send: bearer(g.issuer.Token(groups("viewers"))), role: access.Viewer},
		{name: "an operator of the issuer", send: bearer(g.issuer.Token(groups("operators"))), role: access.Operator},
		{name: "somebody of the issuer", send: bearer(g.issuer.Token(groups("others")))},
		{name: "an expired token", send: bearer(spoiled("exp", time.Now().Add(-time.Minute).Unix())), unknown: 401},
		{name: "a token of another issuer", send: bearer(foreign.Token(groups("operators"))), unknown: 401},
		{name: "a token for another audience", send: bearer(spoiled("aud", "other")), unknown: 401},
		{name: "a token without signature", send: bearer(g.issuer.Unsigned(groups("operators"))), unknown: 401},
		{name: "vera's cookie", send: cookie(vera), role: access.Viewer},
		{name: "otto's cookie", send: cookie(otto), role: access.Operator},
		{name: "a cut cookie", send: cookie(&cut), unknown: 401},
		{name: "otto's cookie and a bad token", send: func(r *http.Request) { cookie(otto)(r); bearer("keb_CANARY-bad")(r) }, unknown: 401},
		{name: "otto's cookie from another site", send: fromAnotherSite(cookie(otto)), role: access.Operator, foreign: true},
		{name: "otto's cookie from another site by an old browser", send: fromAnOldBrowser(cookie(otto)), role: access.Operator, foreign: true},
		{name: "otto's token from another site", send: fromAnotherSite(bearer(ottoToken)), role: access.Operator, foreign: true},
	}
	before := g.snapshot()
	n := 0
	for _, rt := range routes(op.ID) {
		for _, c := range callers {
			want := rt.want
			switch reads := strings.HasPrefix(rt.pattern, "GET "); {
			case c.foreign && !reads:
				want = 403
			case rt.role == "" || c.role.Includes(rt.role):
			case c.unknown != 0:
				want = c.unknown
			default:
				want = 403
			}
			got, header, text := g.send(rt, c.send)
			if got == http.StatusTooManyRequests && want == http.StatusUnauthorized {
				got = want // the same, of an address that has failed often
			}
			n++
			if got != want {
				t.Errorf("%s by %s: %d %s, want %d", rt.pattern, c.name, got, text, want)
			}
			if strings.Contains(text, "CANARY") {
				t.Errorf("%s by %s: the answer has the token", rt.pattern, c.name)
			}
			if got >= 400 && rt.role != "" && text == "" {
				t.Errorf("%s by %s: %d without a reason", rt.pattern, c.name, got)
			}
			if header.Get("WWW-Authenticate") == "" && c.unknown == 401 && rt.role != "" && header.Get("Retry-After") == "" {
				t.Errorf("%s by %s: nothing asks for credentials", rt.pattern, c.name)
			}
		}
	}
	t.Logf("%d requests", n)
	// Operators were refused for other reasons, so nobody has changed anything.
	if diff := cmp.Diff(before, g.snapshot()); diff != "" {
		t.Errorf("something has changed (-before +after)\n%s", diff)
	}
	if log := g.logged.String(); strings.Contains(log, "CANARY") || strings.Contains(log, otto.Value) {
		t.Error("the log has a token or a cookie")
	}
	var recorded string
	if err := g.db.Get(&recorded, `SELECT string_agg(a::text, ',') FROM orchestrator.actions a`); err != nil || strings.Contains(recorded, "CANARY") || recorded == "" {
		t.Errorf("the record of actions has a token, or nothing: %v %s", err, recorded)
	}
}

func TestAPathWithoutARouteSaysNothingToStrangers(t *testing.T) {
	g := newGuarded(t)
	g.orchestrator()
	for _, pattern := range []string{"GET /nothing", "POST /operations", "DELETE /operations/x", "GET /operations/../operations", "GET //operations", "CONNECT /operations", "GET /console/../operations"} {
		if got, _, _ := g.send(route{pattern: pattern}, nobody); got != http.StatusUnauthorized && got != http.StatusMovedPermanently && got != http.StatusTemporaryRedirect {
			t.Errorf("%s: %d", pattern, got)
		}
		if got, _, _ := g.send(route{pattern: pattern}, bearer(veraToken)); got == http.StatusOK || got >= 500 {
			t.Errorf("%s by a viewer: %d", pattern, got)
		}
	}
}

// action is a line of the record as a client reads it.
type action struct{ Name, Role, Authentication, Action, Target, Detail, Outcome, Reason string }

func (g *guarded) record(query string) []action {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.api.URL+"/actions?"+query, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	bearer(veraToken)(r)
	response, err := g.api.Client().Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer response.Body.Close()
	var page struct {
		Data       []action
		Count      int
		TotalCount int
	}
	if err := json.NewDecoder(response.Body).Decode(&page); err != nil || response.StatusCode != http.StatusOK || page.Count != len(page.Data) {
		g.t.Fatalf("%s: %v, %+v", response.Status, err, page)
	}
	return page.Data
}

func TestWhatOperatorsDoIsRecordedWithTheirNames(t *testing.T) {
	g := newGuarded(t)
	g.orchestrator()
	g.worker("alpha")
	g.worker("beta")
	op := g.failed()
	id := "/operations/" + op.ID
	jane := bearer(g.issuer.Token(map[string]any{"groups": "operators", "email": "jane@example.com"}))
	expect := func(want int, pattern, target, body string, c caller) {
		t.Helper()
		kind := jsonBody
		if strings.HasPrefix(target, "/orchestrations/") {
			kind = formBody
		}
		if got, _, text := g.send(route{pattern: pattern, target: target, body: body, contentType: kind}, c); got != want {
			t.Fatalf("%s: %d %s, want %d", target, got, text, want)
		}
	}
	g.script.set("Second", done)
	g.script.set("Poll", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Wait(op, time.Hour, "creating")
	})
	expect(403, "POST", id+"/retry", "", bearer(veraToken))
	// Who is known cannot say that he is another.
	expect(204, "POST", id+"/retry", `{"by":"somebody else"}`, bearer(ottoToken))
	testkit.Eventually(t, patience, "the operation waits in Poll", func() bool {
		var shown struct{ Step string }
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.api.URL+id, nil)
		if err != nil {
			t.Fatal(err)
		}
		bearer(ottoToken)(r)
		response, err := g.api.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return json.NewDecoder(response.Body).Decode(&shown) == nil && shown.Step == "Poll"
	})
	expect(409, "POST", id+"/skip", `{"step":"First"}`, jane)
	expect(204, "POST", id+"/skip", `{"step":"Poll"}`, jane)
	g.await(op, event.Succeeded)
	expect(202, "POST", "/upgrade/kyma", `{"targets":{"include":[{"target":"all"}]},"strategy":{"schedule":"2999-01-01T00:00:00Z"}}`, jane)
	orchestration := g.record("action=upgrade_kyma")[0].Target
	expect(200, "PUT", "/orchestrations/"+orchestration+"/cancel", "", bearer(ottoToken))
	expect(400, "POST", "/orchestrations/"+orchestration+"/retry", "x=y", bearer(ottoToken))
	expect(401, "POST", id+"/cancel", "", bearer("wrong"))

	var got []string
	for _, a := range slices.Backward(g.record("")) {
		got = append(got, strings.Join([]string{a.Name, a.Role, a.Authentication, a.Action, a.Target, a.Detail, a.Outcome, a.Reason}, "|"))
	}
	want := []string{
		"vera|viewer|token|retry|" + op.ID + "||refused|vera has the role viewer, and this needs the role operator",
		"otto|operator|token|retry|" + op.ID + "||done|",
		"jane@example.com|operator|oidc|skip|" + op.ID + "|First|refused|operation " + op.ID + ": not possible: the operation is at step Poll, not First",
		"jane@example.com|operator|oidc|skip|" + op.ID + "|Poll|done|",
		"jane@example.com|operator|oidc|upgrade_kyma|" + orchestration + "||done|",
		"otto|operator|token|cancel_orchestration|" + orchestration + "||done|",
		`otto|operator|token|retry_orchestration|` + orchestration + `||refused|body: unknown field "x"; allowed are operation-id, immediate`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got)\n%s", diff)
	}
	if one := g.record("page=2&page_size=2&target=" + op.ID); len(one) != 2 || one[0].Name != "otto" {
		t.Errorf("second page: %+v", one)
	}
	if refused := g.record("outcome=refused&name=otto"); len(refused) != 1 {
		t.Errorf("what otto was refused: %+v", refused)
	}
	if got, _, text := g.send(route{pattern: "GET /actions?outcome=maybe"}, bearer(veraToken)); got != http.StatusBadRequest || !strings.Contains(text, "allowed are") {
		t.Errorf("a bad outcome: %d %s", got, text)
	}
	var lines []string
	if err := g.db.Select(&lines, `SELECT message FROM orchestrator.history WHERE operation_id = $1 AND message LIKE '% by %'`, op.ID); err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	if diff := cmp.Diff([]string{"retried by otto", "skipped by jane@example.com"}, lines); diff != "" {
		t.Errorf("history of the operation (-want +got)\n%s", diff)
	}
}

func TestWhatCannotBeRecordedIsNotDone(t *testing.T) {
	g := newGuarded(t)
	o := g.orchestrator()
	g.worker("alpha")
	g.worker("beta")
	op := g.failed()
	o.stop()
	before := g.snapshot()
	if _, err := g.db.Exec(`ALTER TABLE orchestrator.actions RENAME TO elsewhere`); err != nil {
		t.Fatal(err)
	}
	got, _, text := g.send(route{pattern: "POST /operations/" + op.ID + "/retry"}, bearer(ottoToken))
	if got != http.StatusServiceUnavailable || !strings.Contains(text, "not done") {
		t.Errorf("retry: %d %s", got, text)
	}
	if _, err := g.db.Exec(`ALTER TABLE orchestrator.elsewhere RENAME TO actions`); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, g.snapshot()); diff != "" {
		t.Errorf("it was done (-before +after)\n%s", diff)
	}
	if got, _, text := g.send(route{pattern: "POST /operations/" + op.ID + "/retry"}, bearer(ottoToken)); got != http.StatusNoContent {
		t.Errorf("afterwards: %d %s", got, text)
	}
}

func TestWhereNobodyIsAskedTheBodyNamesWhoActs(t *testing.T) {
	s := newSystem(t)
	s.start()
	none := uuid.Must(uuid.NewV7()).String()
	for _, body := range []string{`{"by":"jane"}`, ``} {
		if code, text := s.post("/operations/"+none+"/cancel", body); code != http.StatusNotFound {
			t.Fatalf("cancel: %d %s", code, text)
		}
	}
	var page struct{ Data []action }
	s.get("/actions", &page)
	var names []string
	for _, a := range page.Data {
		names = append(names, a.Name+" "+a.Authentication+" "+a.Outcome)
	}
	if diff := cmp.Diff([]string{"an operator none refused", "jane none refused"}, names); diff != "" {
		t.Errorf("record (-want +got)\n%s", diff)
	}
	var me map[string]string
	s.get("/me", &me)
	if diff := cmp.Diff(map[string]string{"name": "an operator", "role": "operator", "authentication": "none"}, me); diff != "" {
		t.Errorf("me (-want +got)\n%s", diff)
	}
	for _, site := range []string{"cross-site", "same-site"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.api.URL+"/operations/"+none+"/cancel", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Sec-Fetch-Site", site)
		response, err := s.api.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("a %s page acts: %s", site, response.Status)
		}
	}
}

func TestTokensOfTheAPIChangeWithoutARestart(t *testing.T) {
	g := newGuarded(t)
	g.orchestrator()
	otto := g.session(ottoToken)
	status := func(c caller) int {
		got, _, _ := g.send(route{pattern: "GET /me"}, c)
		return got
	}
	if status(bearer(ottoToken)) != 200 || status(cookie(otto)) != 200 {
		t.Fatal("otto is not let in")
	}
	listening, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.api.URL+"/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	bearer(ottoToken)(listening)
	stream, err := http.DefaultClient.Do(listening)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Body.Close() }()
	g.writeTokens(tokenLine(t, "otto", access.Operator, "keb_CANARY-next"))
	testkit.Eventually(t, patience, "the new token counts", func() bool { return status(bearer("keb_CANARY-next")) == 200 })
	if token, session := status(bearer(ottoToken)), status(cookie(otto)); token == 200 || session == 200 {
		t.Errorf("the old token: %d, its session: %d", token, session)
	}
	defer time.AfterFunc(time.Minute, func() { _ = stream.Body.Close() }).Stop()
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("a stream that was open goes on with the old token: %v", err)
	}
}

func TestNobodyTakesTheStreamsOfAllOthers(t *testing.T) {
	g := newGuarded(t)
	g.orchestrator()
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	listen := func(token string) int {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.api.URL+"/stream", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		bearer(token)(r)
		response, err := g.api.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return response.StatusCode
	}
	full := 0
	for full < 500 && listen(veraToken) == http.StatusOK {
		full++
	}
	if full != 100 {
		t.Errorf("vera listens %d times", full)
	}
	if got := listen(ottoToken); got != http.StatusOK {
		t.Errorf("otto beside her: %d", got)
	}
	hangUp()
	ctx = t.Context()
	testkit.Eventually(t, patience, "vera may listen again", func() bool { return listen(veraToken) == http.StatusOK })
}

// TestABrowserLogsInAtTheIssuer goes through the redirects as a browser does, with its rules about cookies.
func TestABrowserLogsInAtTheIssuer(t *testing.T) {
	g := newGuarded(t)
	g.orchestrator()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	var places []string
	browser := &http.Client{Jar: jar, Transport: g.api.Client().Transport, Timeout: patience, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		places = append(places, r.URL.Path)
		return nil
	}}
	visit := func(target string) (int, string) {
		t.Helper()
		places = nil
		response, err := browser.Get(g.api.URL + target)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	g.issuer.User(map[string]any{"groups": []string{"viewers"}, "email": "vicky@example.com"})
	if code, _ := visit("/me"); code != http.StatusUnauthorized {
		t.Fatalf("before: %d", code)
	}
	if code, text := visit("/console/login/oidc?next=" + url.QueryEscape("/console/operations?state=failed")); code != http.StatusOK {
		t.Fatalf("login: %d %s", code, text)
	}
	if diff := cmp.Diff([]string{"/authorize", "/console/login/oidc/callback", "/console/operations"}, places); diff != "" {
		t.Errorf("places (-want +got)\n%s", diff)
	}
	code, text := visit("/me")
	if code != http.StatusOK || strings.TrimSpace(text) != `{"name":"vicky@example.com","role":"viewer","authentication":"oidc"}` {
		t.Errorf("me: %d %s", code, text)
	}
	response, err := browser.Post(g.api.URL+"/operations/"+uuid.NewString()+"/cancel", jsonBody, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer acts: %s", response.Status)
	}
	if response, err = browser.Post(g.api.URL+"/console/logout", "", nil); err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if code, _ := visit("/me"); code != http.StatusUnauthorized {
		t.Errorf("logged out: %d", code)
	}
	// Another place is no place to go to.
	for _, next := range []string{"https://evil.example.org/", "//evil.example.org", "/console/../../evil", "/console/\\evil", "/operations"} {
		if visit("/console/login/oidc?next=" + url.QueryEscape(next)); len(places) == 0 || places[len(places)-1] != "/console/" {
			t.Errorf("next %q leads to %v", next, places)
		}
	}
	if code, text := visit("/console/login/oidc/callback?state=%3Cscript%3E&code=x&error=%3Cscript%3E"); code != http.StatusUnauthorized || strings.Contains(text, "<script") {
		t.Errorf("a made up answer: %d %s", code, text)
	}
	if log := g.logged.String(); strings.Contains(log, accesstest.Secret) || strings.Contains(log, "code=") {
		t.Error("the log has a secret")
	}
}

func TestTheConsoleLogsInWithAToken(t *testing.T) {
	g := newGuarded(t)
	g.orchestrator()
	for name, tc := range map[string]struct {
		kind, body string
		want       int
	}{
		"JSON":         {jsonBody, `{"token":"` + veraToken + `"}`, 200},
		"a form":       {formBody, "token=" + veraToken, 200},
		"with spaces":  {jsonBody, `{"token":" ` + veraToken + `\n"}`, 200},
		"a bad token":  {jsonBody, `{"token":"keb_CANARY-bad"}`, 401},
		"no token":     {jsonBody, `{}`, 400},
		"more":         {jsonBody, `{"token":"x","name":"otto"}`, 400},
		"no JSON":      {jsonBody, `keb_CANARY-bad`, 400},
		"another kind": {"text/plain", veraToken, 400},
		"too much":     {jsonBody, `{"token":"` + strings.Repeat("x", 1<<17) + `"}`, 400},
		"no role":      {jsonBody, `{"token":"` + g.issuer.Token(map[string]any{"groups": "others"}) + `"}`, 403},
		"the issuer's": {jsonBody, `{"token":"` + g.issuer.Token(map[string]any{"groups": "viewers"}) + `"}`, 200},
	} {
		got, header, text := g.send(route{pattern: "POST /console/login", contentType: tc.kind, body: tc.body}, nobody)
		if got != tc.want || (header.Get("Set-Cookie") != "") != (tc.want == 200) || strings.Contains(text, "CANARY") {
			t.Errorf("%s: %d %s, cookie %v, want %d", name, got, text, header.Get("Set-Cookie") != "", tc.want)
		}
	}
	if got, _, _ := g.send(route{pattern: "POST /console/login", contentType: jsonBody, body: `{"token":"` + veraToken + `"}`}, fromAnotherSite(nobody)); got != 403 {
		t.Errorf("a login that another site makes: %d", got)
	}
	if strings.Contains(g.logged.String(), "CANARY") {
		t.Error("the log has a token")
	}
}

func TestSettingsOfAccessThatCannotBeAreNamed(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"keb.example.org", "ftp://keb", "https://keb.example.org/console", "https://keb?x=y", "https://a:b@keb"} {
		cfg := orchestrator.Config{DatabaseURL: "postgres://h/d", PublicURL: address}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "KEB_OPERATOR_PUBLIC_URL") {
			t.Errorf("%s: %v", address, err)
		}
	}
	cfg := orchestrator.Config{DatabaseURL: "postgres://h/d", PublicURL: "https://keb.example.org/", KeepActions: -1, Access: access.Config{Mode: "all"}}
	err := cfg.Validate()
	for _, want := range []string{"KEB_ACTIONS_KEEP", "KEB_ACCESS:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "PUBLIC_URL") {
		t.Errorf("a slash at the end: %v", err)
	}
}
