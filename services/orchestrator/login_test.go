package orchestrator_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access/accesstest"
)

// TestLogin_Issuer_CreatesASession follows the redirects like a browser, including its rules for cookies.
func TestLogin_Issuer_CreatesASession(t *testing.T) {
	g := newGuarded(t)
	g.orchestrator()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	var places []string
	browser := &http.Client{Jar: jar, Transport: g.api.Client().Transport, Timeout: patience, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		places = append(places, r.URL.Path)
		return nil
	}}
	visit := func(target string) (int, string) {
		t.Helper()
		places = nil
		response, err := browser.Get(g.api.URL + target)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
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
	require.NoError(t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer can act: %s", response.Status)
	}
	response, err = browser.Post(g.api.URL+"/console/logout", "", nil)
	require.NoError(t, err)
	_ = response.Body.Close()
	if code, _ := visit("/me"); code != http.StatusUnauthorized {
		t.Errorf("logged out: %d", code)
	}
	// The redirect must stay in the console.
	for _, next := range []string{"https://evil.example.org/", "//evil.example.org", "/console/../../evil", "/console/\\evil", "/operations"} {
		if visit("/console/login/oidc?next=" + url.QueryEscape(next)); len(places) == 0 || places[len(places)-1] != "/console/" {
			t.Errorf("next %q leads to %v", next, places)
		}
	}
	if code, text := visit("/console/login/oidc/callback?state=%3Cscript%3E&code=x&error=%3Cscript%3E"); code != http.StatusUnauthorized || strings.Contains(text, "<script") {
		t.Errorf("a forged callback: %d %s", code, text)
	}
	if log := g.logged.String(); strings.Contains(log, accesstest.Secret) || strings.Contains(log, "code=") {
		t.Error("the log has a secret")
	}
}

func TestLogin_Token_CreatesASession(t *testing.T) {
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
		t.Errorf("a login from another site: %d", got)
	}
	if strings.Contains(g.logged.String(), "CANARY") {
		t.Error("the log has a token")
	}
}
