package access

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access/accesstest"
)

func TestOIDC_Groups_DetermineRole(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for name, tc := range map[string]struct {
		claims map[string]any
		want   Identity
	}{
		"viewer":       {groups("x", "keb-viewers"), Identity{Name: "jane", Role: Viewer}},
		"operator":     {groups("admins"), Identity{Name: "jane", Role: Operator}},
		"both":         {groups("keb-viewers", "keb-operators"), Identity{Name: "jane", Role: Operator}},
		"no group":     {groups("x"), Identity{Name: "jane"}},
		"no claim":     {map[string]any{"email": "jane@example.com"}, Identity{Name: "jane@example.com"}},
		"one group":    {map[string]any{"groups": "admins"}, Identity{Name: "user-1", Role: Operator}},
		"no list":      {map[string]any{"groups": map[string]any{"admins": true}}, Identity{Name: "user-1"}},
		"a part":       {map[string]any{"groups": "admins keb-viewers"}, Identity{Name: "user-1"}},
		"spoiled name": {map[string]any{"groups": "admins", "preferred_username": "\x00\n\u202e"}, Identity{Name: "user-1", Role: Operator}},
		"lines":        {map[string]any{"groups": "admins", "preferred_username": "a\nb"}, Identity{Name: "ab", Role: Operator}},
		"a long name":  {map[string]any{"preferred_username": strings.Repeat("é", 80)}, Identity{Name: strings.Repeat("é", 50)}},
		"a client":     {map[string]any{"groups": "admins", "client_id": "robot"}, Identity{Name: "robot", Role: Operator}},
	} {
		got, err := b.auth.Authenticate(request(t, b.issuer.Token(tc.claims)))
		if err != nil || got.Name != tc.want.Name || got.Role != tc.want.Role || got.Authentication != OIDC || got.Subject != "user-1" || got.Expires.IsZero() {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, tc.want)
		}
	}
}

func TestOIDC_RolesClaimPath_IsFound(t *testing.T) {
	t.Parallel()
	claims := map[string]any{
		"realm_access": map[string]any{"roles": []any{"a", "b"}}, "https://example.org/roles": []any{"c"}, "scope": "d e", "n": 1,
		"mixed": []any{"f", 1, nil, "g"},
	}
	for name, want := range map[string]string{
		"realm_access.roles": "a b", "https://example.org/roles": "c", "scope": "d e", "n": "", "mixed": "f g", "": "", ".": "", "realm_access": "",
		"realm_access.roles.x": "", "x.y.z": "", "n.x": "",
	} {
		if got := strings.Join(rolesOf(claims, name), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestOIDC_InvalidTokens_AreRejected(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	other := accesstest.NewIssuer(t, b.clock.Now)
	good := groups("admins")
	with := func(key string, value any) map[string]any {
		claims := groups("admins")
		claims[key] = value
		return claims
	}
	for name, token := range map[string]string{
		"expired":                  b.issuer.Token(with("exp", b.clock.Now().Add(-time.Second).Unix())),
		"not yet valid":            b.issuer.Token(with("nbf", b.clock.Now().Add(time.Hour).Unix())),
		"no expiry":                b.issuer.Token(with("exp", nil)),
		"for another audience":     b.issuer.Token(with("aud", "other")),
		"for no audience":          b.issuer.Token(with("aud", []string{})),
		"naming another issuer":    b.issuer.Token(with("iss", "https://issuer.example.org")),
		"of another issuer":        other.Token(good),
		"of another with our name": other.Token(with("iss", b.issuer.URL())),
		"without a signature":      b.issuer.Unsigned(good),
		"with the key as a secret": b.issuer.KeyAsSecret(good),
		"cut":                      strings.TrimSuffix(b.issuer.Token(good), "A") + "xx",
		"garbage":                  "a.b.c",
		"no token at all":          "xyzzy",
		"too long":                 strings.Repeat("a.", 10_000),
	} {
		b.clock.Advance(time.Minute) // avoid the limit of attempts
		response, who := ask(t, NewGuard(b.auth, nil).Protect, request(t, token))
		if response.StatusCode != http.StatusUnauthorized || who.Name != "" {
			t.Errorf("%s: %s, %+v", name, response.Status, who)
		}
		if got := response.Header.Get("WWW-Authenticate"); got != `Bearer realm="keb", error="invalid_token"` {
			t.Errorf("%s: WWW-Authenticate %q", name, got)
		}
		if text := message(t, response); text == "" || strings.Contains(text, token) {
			t.Errorf("%s: %q", name, text)
		}
		if strings.Contains(b.log.String(), token[:len(token)/2+1]) && len(token) > 10 {
			t.Errorf("%s: the log has the token", name)
		}
	}
	if response, who := ask(t, NewGuard(b.auth, nil).Protect, request(t, b.issuer.Token(good))); response.StatusCode != http.StatusNoContent || who.Name != "jane" {
		t.Errorf("a good one after all: %s, %+v", response.Status, who)
	}
}

func TestOIDC_IssuerIsDown_Returns503(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.issuer.Down(true) })
	token := b.issuer.Token(groups("admins"))
	guard := NewGuard(b.auth, nil)
	status := func(token string) (int, *http.Response) {
		response, _ := ask(t, guard.Protect, request(t, token))
		return response.StatusCode, response
	}
	for range 3 {
		code, response := status(token)
		if code != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
			t.Fatalf("issuer away: %d", code)
		}
		if text := message(t, response); !strings.Contains(text, b.issuer.URL()) || !strings.Contains(text, "does not answer") {
			t.Errorf("issuer away: %q", text)
		}
	}
	// Static tokens do not need the issuer.
	if code, _ := status(operatorToken); code != http.StatusNoContent {
		t.Errorf("static token: %d", code)
	}
	if code, _ := status("wrong"); code != http.StatusUnauthorized {
		t.Errorf("wrong token: %d", code)
	}
	if code, _ := status(""); code != http.StatusUnauthorized {
		t.Errorf("no token: %d", code)
	}
	b.issuer.Down(false)
	b.clock.Advance(discoverEvery)
	if code, _ := status(token); code != http.StatusNoContent {
		t.Errorf("issuer back: %d", code)
	}
	// While the issuer is down again, known keys are sufficient; tokens with unknown keys are not verified.
	b.issuer.Down(true)
	b.clock.Advance(fetchEvery)
	if code, _ := status(token); code != http.StatusNoContent {
		t.Errorf("away again, known key: %d", code)
	}
	b.issuer.Rotate()
	if code, _ := status(b.issuer.Token(groups("admins"))); code != http.StatusServiceUnavailable {
		t.Errorf("away again, unknown key: %d", code)
	}
	if n := strings.Count(b.log.String(), "OIDC issuer does not answer"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

func TestOIDC_NewKey_IsUsed(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	old := b.issuer.Token(groups("admins"))
	_, err := b.auth.Authenticate(request(t, old))
	require.NoError(t, err)
	b.issuer.Rotate()
	b.clock.Advance(fetchEvery)
	if _, err := b.auth.Authenticate(request(t, b.issuer.Token(groups("admins")))); err != nil {
		t.Errorf("new key: %v", err)
	}
	b.clock.Advance(fetchEvery)
	if _, err := b.auth.Authenticate(request(t, old)); err == nil {
		t.Error("a token of the old key is still good")
	}
}

func TestRemoteKeys_UnknownKeys_FetchOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	other := accesstest.NewIssuer(t, b.clock.Now)
	other.Rotate()
	for range 50 {
		claims := groups("admins")
		claims["iss"] = b.issuer.URL()
		if _, err := b.auth.Authenticate(request(t, other.Token(claims))); err == nil {
			t.Fatal("accepted a token of another key")
		}
	}
	if n := b.issuer.Fetches(); n != 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
}
