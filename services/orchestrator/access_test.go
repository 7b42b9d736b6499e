package orchestrator_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/access/accesstest"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestAccess_Roles_AllowTheirRoutes(t *testing.T) {
	g := newGuarded(t)
	o := g.orchestrator()
	alpha, beta := g.worker("alpha"), g.worker("beta")
	op := g.failed()
	alpha.stop()
	beta.stop()
	vera, otto := g.session(veraToken), g.session(ottoToken)
	// Only the requests change anything from here on.
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
		// unknown is the status for an unauthenticated caller. An authenticated caller without the role gets 403.
		unknown int
		// foreign marks a request that is rejected unless it only reads.
		foreign bool
	}{
		{name: "nobody", send: nobody, unknown: 401},
		{name: "a bad token", send: bearer("keb_CANARY-bad"), unknown: 401},
		{name: "the platform", send: func(r *http.Request) { r.SetBasicAuth("keb", "keb") }, unknown: 401},
		{name: "vera's token", send: bearer(veraToken), role: access.Viewer},
		{name: "otto's token", send: bearer(ottoToken), role: access.Operator},
		{name: "a viewer of the issuer", send: bearer(g.issuer.Token(groups("viewers"))), role: access.Viewer},
		{name: "an operator of the issuer", send: bearer(g.issuer.Token(groups("operators"))), role: access.Operator},
		{name: "a stranger of the issuer", send: bearer(g.issuer.Token(groups("others")))},
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
				got = want // the same, for an address with many failed attempts
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
				t.Errorf("%s by %s: the answer has no WWW-Authenticate header", rt.pattern, c.name)
			}
		}
	}
	t.Logf("%d requests", n)
	// The operators' requests failed for other reasons, so nothing may have changed.
	if diff := cmp.Diff(before, g.snapshot()); diff != "" {
		t.Errorf("the state has changed (-before +after)\n%s", diff)
	}
	if log := g.logged.String(); strings.Contains(log, "CANARY") || strings.Contains(log, otto.Value) {
		t.Error("the log has a token or a cookie")
	}
	var recorded string
	if err := g.db.Get(&recorded, `SELECT string_agg(a::text, ',') FROM orchestrator.actions a`); err != nil || strings.Contains(recorded, "CANARY") || recorded == "" {
		t.Errorf("the record of actions has a token, or nothing: %v %s", err, recorded)
	}
}

func TestAccess_UnknownPath_RequiresCredentials(t *testing.T) {
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

func TestAccess_TokenFileChanges_AppliesWithoutRestart(t *testing.T) {
	g := newGuarded(t)
	g.orchestrator()
	otto := g.session(ottoToken)
	status := func(c caller) int {
		got, _, _ := g.send(route{pattern: "GET /me"}, c)
		return got
	}
	if status(bearer(ottoToken)) != 200 || status(cookie(otto)) != 200 {
		t.Fatal("otto is rejected")
	}
	listening, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.api.URL+"/stream", http.NoBody)
	require.NoError(t, err)
	bearer(ottoToken)(listening)
	stream, err := http.DefaultClient.Do(listening)
	require.NoError(t, err)
	defer func() { _ = stream.Body.Close() }()
	g.writeTokens(tokenLine(t, "otto", access.Operator, "keb_CANARY-next"))
	testkit.Eventually(t, patience, "the new token is accepted", func() bool { return status(bearer("keb_CANARY-next")) == 200 })
	if token, session := status(bearer(ottoToken)), status(cookie(otto)); token == 200 || session == 200 {
		t.Errorf("the old token: %d, its session: %d", token, session)
	}
	defer time.AfterFunc(time.Minute, func() { _ = stream.Body.Close() }).Stop()
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("a stream that was open continues with the old token: %v", err)
	}
}

func TestAccess_ManyStreams_AreLimitedPerUser(t *testing.T) {
	g := newGuarded(t)
	g.orchestrator()
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	listen := func(token string) int {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.api.URL+"/stream", http.NoBody)
		require.NoError(t, err)
		bearer(token)(r)
		response, err := g.api.Client().Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		return response.StatusCode
	}
	full := 0
	for full < 500 && listen(veraToken) == http.StatusOK {
		full++
	}
	if full != 100 {
		t.Errorf("vera has %d streams", full)
	}
	if got := listen(ottoToken); got != http.StatusOK {
		t.Errorf("otto at the same time: %d", got)
	}
	hangUp()
	ctx = t.Context()
	testkit.Eventually(t, patience, "vera may open a stream again", func() bool { return listen(veraToken) == http.StatusOK })
}

func TestAccess_InvalidSettings_AreNamed(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"keb.example.org", "ftp://keb", "https://keb.example.org/console", "https://keb?x=y", "https://a:b@keb"} {
		cfg := configAt("postgres://h/d")
		cfg.PublicURL = address
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "KEB_OPERATOR_PUBLIC_URL") {
			t.Errorf("%s: %v", address, err)
		}
	}
	cfg := configAt("postgres://h/d")
	cfg.PublicURL, cfg.KeepActions, cfg.Access = "https://keb.example.org/", -1, access.Config{Mode: "all"}
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
