package auth_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker/internal/auth"
)

const issuer, audience = "https://issuer.example.org", "keb"

type keys struct {
	private *rsa.PrivateKey
	set     []byte
	now     time.Time
}

func newKeys(t testing.TB) *keys {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
	require.NoError(t, err)
	return &keys{private: private, set: set, now: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)}
}

func (k *keys) clock() time.Time { return k.now }

func (k *keys) claims(change func(jwt.MapClaims)) jwt.MapClaims {
	c := jwt.MapClaims{
		"iss": issuer, "aud": audience, "sub": "s", "client_id": "platform", "exp": k.now.Add(time.Hour).Unix(), "scope": "cld:read broker:write",
	}
	if change != nil {
		change(c)
	}
	return c
}

func (k *keys) sign(t testing.TB, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = "k"
	signed, err := token.SignedString(key)
	require.NoError(t, err)
	return signed
}

func (k *keys) file(t testing.TB) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(name, k.set, 0o600))
	return name
}

func authenticate(t *testing.T, j *auth.JWT, authorization string) (osb.Principal, error) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return j.Authenticate(r)
}

func TestAuthenticate_InvalidToken_IsRejected(t *testing.T) {
	t.Parallel()
	k, other := newKeys(t), newKeys(t)
	j, err := auth.New(t.Context(), auth.Config{Issuer: issuer, Audience: audience, KeySetFile: k.file(t), Scope: "broker:write"}, k.clock)
	require.NoError(t, err)
	rs := func(change func(jwt.MapClaims)) string {
		return "Bearer " + k.sign(t, jwt.SigningMethodRS256, k.private, k.claims(change))
	}
	for name, token := range map[string]string{
		"good":            rs(nil),
		"scopes in array": rs(func(c jwt.MapClaims) { c["scope"] = []string{"broker:write"} }),
		"small letters":   "bearer " + k.sign(t, jwt.SigningMethodPS256, k.private, k.claims(nil)),
	} {
		p, err := authenticate(t, j, token)
		if err != nil || p != (osb.Principal{Name: "platform", Scheme: "bearer"}) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	for name, token := range map[string]string{
		"none":           "",
		"basic":          "Basic a2ViOmtlYg==",
		"no token":       "Bearer x",
		"other key":      "Bearer " + k.sign(t, jwt.SigningMethodRS256, other.private, k.claims(nil)),
		"no signature":   "Bearer " + k.sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, k.claims(nil)),
		"key as secret":  "Bearer " + k.sign(t, jwt.SigningMethodHS256, k.set, k.claims(nil)),
		"wrong audience": rs(func(c jwt.MapClaims) { c["aud"] = "other" }),
		"wrong issuer":   rs(func(c jwt.MapClaims) { c["iss"] = "https://other.example.org" }),
		"expired":        rs(func(c jwt.MapClaims) { c["exp"] = k.now.Add(-time.Second).Unix() }),
		"wrong scope":    rs(func(c jwt.MapClaims) { c["scope"] = "broker:read" }),
		"no scope":       rs(func(c jwt.MapClaims) { delete(c, "scope") }),
	} {
		if _, err := authenticate(t, j, token); !errors.Is(err, osb.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAuthenticate_KeysUnavailable_Returns503(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	var up atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		_, _ = w.Write(k.set)
	}))
	defer server.Close()
	j, err := auth.New(t.Context(), auth.Config{Issuer: issuer, Audience: audience, KeySetURL: server.URL}, k.clock)
	require.NoError(t, err)
	token := "Bearer " + k.sign(t, jwt.SigningMethodRS256, k.private, k.claims(func(c jwt.MapClaims) { delete(c, "scope") }))
	_, err = authenticate(t, j, token)
	if e, ok := errors.AsType[*osb.Error](err); !ok || e.Status != http.StatusServiceUnavailable {
		t.Errorf("keys away: %v", err)
	}
	up.Store(true)
	// The library may use the result of the failed fetch for one more call.
	testkit.Eventually(t, time.Minute, "keys are back", func() bool {
		_, err := authenticate(t, j, token)
		return err == nil
	})
}

func TestNew_InvalidConfig_IsRejected(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	bad := filepath.Join(t.TempDir(), "bad.json")
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: k.private, KeyID: "k"}}})
	require.NoError(t, err)
	for _, tc := range []struct {
		name, content, want string
		cfg                 auth.Config
	}{
		{"nothing", "", "issuer is missing", auth.Config{}},
		{"no audience", "", "audience", auth.Config{Issuer: issuer, KeySetFile: bad}},
		{"no keys", "", "the URL or the file", auth.Config{Issuer: issuer, Audience: audience}},
		{"both", "", "the URL or the file", auth.Config{Issuer: issuer, Audience: audience, KeySetFile: bad, KeySetURL: "https://e.org"}},
		{"no JSON", "x", "not a JSON Web Key Set", auth.Config{Issuer: issuer, Audience: audience, KeySetFile: bad}},
		{"empty", `{"keys":[]}`, "holds no key", auth.Config{Issuer: issuer, Audience: audience, KeySetFile: bad}},
		{"private key", string(private), "not a valid public key", auth.Config{Issuer: issuer, Audience: audience, KeySetFile: bad}},
	} {
		require.NoError(t, os.WriteFile(bad, []byte(tc.content), 0o600))
		if _, err := auth.New(t.Context(), tc.cfg, time.Now); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}
