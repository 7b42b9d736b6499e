package access

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/seal"
)

// browser stores and sends all cookies.
type browser struct {
	t        *testing.T
	b        *bench
	sessions *Sessions
	cookies  map[string]*http.Cookie
}

func newBrowser(t *testing.T, b *bench, secure bool) *browser {
	t.Helper()
	s, err := NewSessions(b.auth, secure)
	require.NoError(t, err)
	return &browser{t: t, b: b, sessions: s, cookies: map[string]*http.Cookie{}}
}

func (w *browser) keep(response *http.Response) {
	for _, c := range response.Cookies() {
		if c.MaxAge < 0 {
			delete(w.cookies, c.Name)
			continue
		}
		w.cookies[c.Name] = c
	}
}

func (w *browser) login(i Identity) {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	require.NoError(w.t, w.sessions.Start(recorder, i))
	w.keep(recorder.Result())
}

func (w *browser) request(target string) *http.Request {
	r := request(w.t, "")
	u, err := url.Parse(target)
	require.NoError(w.t, err)
	r.URL = u
	for _, c := range w.cookies {
		r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
	return r
}

// role returns the current role of the browser's session, and the status of the answer.
func (w *browser) role() (Role, int) {
	w.t.Helper()
	response, who := ask(w.t, NewGuard(w.b.auth, w.sessions).Protect, w.request("/operations"))
	return who.Role, response.StatusCode
}

func (w *browser) expect(when string, want Role) {
	w.t.Helper()
	status := http.StatusNoContent
	if want == "" {
		status = http.StatusUnauthorized
	}
	if got, code := w.role(); got != want || code != status {
		w.t.Errorf("%s: role %q, %d, want %q", when, got, code, want)
	}
}

func TestSession_TokenChanges_ChangesRole(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	i, err := b.auth.Check(request(t, ""), operatorToken)
	require.NoError(t, err)
	w := newBrowser(t, b, false)
	w.login(i)
	w.expect("at first", Operator)
	write(t, b.file, line(t, "otto", Viewer, operatorToken))
	b.clock.Advance(lookEvery)
	w.expect("only a viewer now", Viewer)
	write(t, b.file, "[]")
	b.clock.Advance(lookEvery)
	w.expect("the token is gone", "")
	write(t, b.file, line(t, "otto", Operator, operatorToken))
	b.clock.Advance(lookEvery)
	w.expect("and back", Operator)
	b.clock.Advance(defaultLifetime)
	w.expect("the session is over", "")
}

func TestSession_OIDCTokenExpires_Ends(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	i, err := b.auth.Check(request(t, ""), b.issuer.Token(groups("keb-viewers", "admins", "x")))
	require.NoError(t, err)
	w := newBrowser(t, b, false)
	w.login(i)
	w.expect("at first", Operator)
	b.issuer.Down(true)
	w.expect("the issuer is away", Operator)
	b.clock.Advance(time.Hour - time.Minute)
	w.expect("nearly over", Operator)
	b.clock.Advance(time.Minute)
	w.expect("over", "")

	// After a restart with another configuration, the role is determined again.
	b.clock.Advance(-time.Hour)
	again := *b
	again.cfg.OIDCOperators = []string{"others"}
	again.auth, err = New(again.cfg, Deps{Now: b.clock.Now})
	require.NoError(t, err)
	keys := w.sessions.keys
	w.sessions, w.b = &Sessions{auth: again.auth, keys: keys}, &again
	w.expect("with other groups", Viewer)
}

func TestSession_Cookie_IsHTTPOnlyForHost(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	i, err := b.auth.Check(request(t, ""), operatorToken)
	require.NoError(t, err)
	for secure, name := range map[bool]string{true: "__Host-keb-session", false: "keb-session"} {
		w := newBrowser(t, b, secure)
		w.login(i)
		c := w.cookies[name]
		if c == nil || !c.HttpOnly || c.Secure != secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge != 8*3600 {
			t.Errorf("secure %v: %+v", secure, w.cookies)
		}
		w.expect("logged in", Operator)
		if strings.Contains(c.Value, "CANARY") {
			t.Error("the cookie has the token")
		}
		recorder := httptest.NewRecorder()
		w.sessions.End(recorder)
		w.keep(recorder.Result())
		w.expect("logged out", "")
	}
}

func TestSession_OtherKeyring_IsRejected(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.cfg.SessionKey = "k1:" + seal.NewKey() })
	i, err := b.auth.Check(request(t, ""), operatorToken)
	require.NoError(t, err)
	w := newBrowser(t, b, false)
	w.login(i)
	replica := newBrowser(t, b, false)
	replica.cookies = w.cookies
	replica.expect("another replica", Operator)

	good := w.cookies[sessionName].Value
	other, err := seal.ParseKeyring("k1:" + seal.NewKey())
	require.NoError(t, err)
	foreign, err := other.Seal([]byte(`{"a":"oidc","e":"2999-01-01T00:00:00Z","n":"x","g":["admins"]}`), []byte(sessionName))
	require.NoError(t, err)
	// This cookie is sealed with our key, for another purpose.
	login, err := w.sessions.keys.Seal([]byte(`{"a":"oidc","e":"2999-01-01T00:00:00Z","n":"x","g":["admins"]}`), []byte(loginName))
	require.NoError(t, err)
	for name, value := range map[string]string{
		"cut": good[:len(good)-1], "changed": good[:len(good)-2] + "xx", "another key": foreign, "another purpose": login, "empty": "", "garbage": "v1.k1.x",
		"in the clear": `{"a":"oidc"}`,
	} {
		w.cookies[sessionName].Value = value
		w.expect(name, "")
	}
	// A header takes precedence over a cookie, even if the header is invalid.
	w.cookies[sessionName].Value = good
	r := w.request("/operations")
	r.Header.Set("Authorization", "Bearer wrong")
	if response, _ := ask(t, NewGuard(b.auth, w.sessions).Protect, r); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a good cookie beside a bad token: %s", response.Status)
	}
}

func TestSessions_GeneratedKey_WarnsOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	newBrowser(t, b, false)
	if n := strings.Count(b.log.String(), "KEB_ACCESS_SESSION_KEY"); n != 1 {
		t.Errorf("warned %d times: %s", n, b.log)
	}
}

const (
	callback = "http://keb.example.org/console/login/oidc/callback"
	at       = "/console/login/oidc"
)

// begin starts a login and returns the issuer's URL. follow requests that URL and returns the redirect back.
func (w *browser) begin() string {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	require.NoError(w.t, w.sessions.Begin(recorder, w.request(at), callback, "/console/operations"))
	response := recorder.Result()
	w.keep(response)
	return response.Header.Get("Location")
}

func (w *browser) follow(address string) string {
	w.t.Helper()
	client := &http.Client{
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{DisableKeepAlives: true},
	}
	response, err := client.Get(address)
	require.NoError(w.t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusFound {
		w.t.Fatalf("the issuer answers %s to %s", response.Status, address)
	}
	return response.Header.Get("Location")
}

func (w *browser) finish(address string) (Identity, string, error) {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	i, next, err := w.sessions.Finish(recorder, w.request(address), callback)
	w.keep(recorder.Result())
	return i, next, err
}

func TestLogin_Issuer_StartsSession(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.issuer.Redirect(callback)
	b.issuer.User(groups("keb-operators"))
	w := newBrowser(t, b, true)
	sent := w.begin()
	c := w.cookies["__Host-keb-login"]
	if c == nil || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
		t.Errorf("cookie of the login: %+v", c)
	}
	back := w.follow(sent)
	i, next, err := w.finish(back)
	if err != nil || i.Name != "jane" || i.Role != Operator || next != "/console/operations" {
		t.Fatalf("login: %+v, %q, %v", i, next, err)
	}
	w.expect("logged in", Operator)
	if _, left := w.cookies["__Host-keb-login"]; left {
		t.Error("the cookie of the login is left")
	}
	if _, _, err := w.finish(back); err == nil {
		t.Error("the same answer of the issuer logs in twice")
	}
	for _, secret := range []string{"client-secret-CANARY", back, c.Value} {
		if strings.Contains(b.log.String(), secret) {
			t.Errorf("the log has %s", secret)
		}
	}
}

func TestLogin_NoRole_IsRejected(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.issuer.Redirect(callback)
	b.issuer.User(groups("others"))
	w := newBrowser(t, b, false)
	_, _, err := w.finish(w.follow(w.begin()))
	if e, ok := errors.AsType[*Error](err); !ok || e.Status != http.StatusForbidden || e.Message != "jane has no role here" {
		t.Errorf("login: %v", err)
	}
	w.expect("afterwards", "")
}

func TestLogin_OtherBrowser_IsRejected(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.issuer.Redirect(callback)
	b.issuer.User(groups("keb-operators"))
	attacker := newBrowser(t, b, false)
	stolen := attacker.follow(attacker.begin())
	for name, tc := range map[string]struct {
		prepare func(w *browser) string
		want    string
	}{
		"another browser's answer": {func(w *browser) string { w.begin(); return stolen }, "not the login that this browser has begun"},
		"never begun":              {func(*browser) string { return stolen }, "begun elsewhere"},
		"too late": {func(w *browser) string {
			back := w.follow(w.begin())
			b.clock.Advance(loginTimeout)
			return back
		}, "taken too long"},
		"without a state": {func(w *browser) string { w.begin(); return callback + "?code=x" }, "not the login"},
		"refused by the issuer": {func(w *browser) string {
			u, err := url.Parse(w.begin())
			require.NoError(t, err)
			return callback + "?error=access_denied&state=" + u.Query().Get("state")
		}, "access_denied"},
		"an invented code": {func(w *browser) string {
			u, err := url.Parse(w.begin())
			require.NoError(t, err)
			return callback + "?code=invented&state=" + u.Query().Get("state")
		}, "unknown, expired or not for this service"},
		"another verifier": {func(w *browser) string {
			back := w.follow(w.begin())
			u, err := url.Parse(back)
			require.NoError(t, err)
			// The state is valid, but the rest belongs to another login.
			recorder := httptest.NewRecorder()
			content := login{State: u.Query().Get("state"), Nonce: "n", Verifier: strings.Repeat("v", 43), Expires: b.clock.Now().Add(time.Minute)}
			require.NoError(t, w.sessions.set(recorder, w.sessions.name(loginName), http.SameSiteLaxMode, content, time.Minute))
			w.keep(recorder.Result())
			return back
		}, "unknown, expired or not for this service"},
		"another nonce": {func(w *browser) string {
			b.issuer.Spoil(func(c jwt.MapClaims) { c["nonce"] = "other" })
			return w.follow(w.begin())
		}, "unknown, expired or not for this service"},
	} {
		b.issuer.Spoil(nil)
		w := newBrowser(t, b, false)
		_, _, err := w.finish(tc.prepare(w))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		w.expect(name, "")
	}
}

func TestLogin_IssuerIsDown_Returns503(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.issuer.Down(true) })
	w := newBrowser(t, b, false)
	err := w.sessions.Begin(httptest.NewRecorder(), w.request(at), callback, "")
	if e, ok := errors.AsType[*Error](err); !ok || e.Status != http.StatusServiceUnavailable {
		t.Errorf("begin: %v", err)
	}
	b.issuer.Down(false)
	b.clock.Advance(discoverEvery)
	b.issuer.Redirect(callback)
	back := w.follow(w.begin())
	b.issuer.Down(true)
	_, _, err = w.finish(back)
	if e, ok := errors.AsType[*Error](err); !ok || e.Status != http.StatusServiceUnavailable {
		t.Errorf("finish: %v", err)
	}
}

func FuzzCookie(f *testing.F) {
	a, err := New(Config{OIDCIssuer: "https://issuer.example.org", OIDCAudience: "keb", OIDCOperators: []string{"admins"}}, Deps{})
	require.NoError(f, err)
	s, err := NewSessions(a, false)
	require.NoError(f, err)
	recorder := httptest.NewRecorder()
	require.NoError(f, s.Start(recorder, Identity{Name: "jane", Role: Operator, Authentication: OIDC, Expires: time.Now().Add(time.Hour), groups: []string{"admins"}}))
	good := recorder.Result().Cookies()[0].Value
	f.Add(good)
	f.Add("")
	f.Add("v1.process.AAAA")
	f.Add(good + good)
	f.Fuzz(func(t *testing.T, value string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: sessionName, Value: value})
		i, _, err := s.Identify(r)
		// The parsed cookie can differ from the input, for example without quotes.
		if c, missing := r.Cookie(sessionName); (missing != nil || c.Value != good) && (i.Role != "" || err == nil && i.Name != "") {
			t.Errorf("a forged cookie authenticates %+v", i)
		}
	})
}

func FuzzSessionContent(f *testing.F) {
	a, err := New(Config{OIDCIssuer: "https://issuer.example.org", OIDCAudience: "keb", OIDCOperators: []string{"admins"}}, Deps{})
	require.NoError(f, err)
	s, err := NewSessions(a, false)
	require.NoError(f, err)
	f.Add([]byte(`{"a":"oidc","e":"2999-01-01T00:00:00Z","n":"jane","g":["admins"]}`))
	f.Add([]byte(`{"a":"token","e":"2999-01-01T00:00:00Z","t":"zz"}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		sealed, err := s.keys.Seal(content, []byte(sessionName))
		require.NoError(t, err)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: sessionName, Value: sealed})
		i, found, err := s.Identify(r)
		if found && err == nil && (i.Authentication != OIDC || !time.Now().Before(i.Expires)) {
			t.Errorf("lets in %+v", i)
		}
	})
}
