// Package accesstest provides a small OpenID Connect issuer for tests: discovery, keys
// that can be replaced, valid and invalid tokens, and the login of a browser.
package accesstest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

// Client and Secret are the credentials of the issuer's only client.
const (
	Client = "keb"
	Secret = "client-secret-CANARY"
)

// Issuer is a running issuer. Its user logs in without a prompt.
type Issuer struct {
	t      testing.TB
	server *httptest.Server
	now    func() time.Time

	mu       sync.Mutex
	down     bool
	serial   int
	key      *rsa.PrivateKey
	user     map[string]any
	redirect string
	codes    map[string]grant
	fetches  int
	spoil    func(claims jwt.MapClaims)
}

type grant struct{ challenge, nonce, redirect string }

// NewIssuer starts an issuer, which stops at the end of the test. Its tokens are valid for an hour of the clock.
func NewIssuer(t testing.TB, now func() time.Time) *Issuer {
	t.Helper()
	i := &Issuer{t: t, now: now, codes: map[string]grant{}, user: map[string]any{"sub": "user-1"}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.discovery)
	mux.HandleFunc("GET /keys", i.keys)
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	i.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		down := i.down
		i.mu.Unlock()
		if down {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(i.server.Close)
	i.Rotate()
	return i
}

// URL returns the URL of the issuer, which is also its name.
func (i *Issuer) URL() string { return i.server.URL }

// Down makes the issuer answer only with errors, or restores it.
func (i *Issuer) Down(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Rotate replaces the issuer's key. Tokens of the old key become invalid.
func (i *Issuer) Rotate() {
	i.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key = key
	i.serial++
}

// User sets the user of later logins: claims in addition to the default ones.
func (i *Issuer) User(claims map[string]any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.user = claims
}

// Redirect sets the only address to which browsers are redirected.
func (i *Issuer) Redirect(address string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.redirect = address
}

// Spoil changes the tokens of logins.
func (i *Issuer) Spoil(f func(claims jwt.MapClaims)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.spoil = f
}

// Fetches returns how often the keys were fetched.
func (i *Issuer) Fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// Token returns a valid token with additional or changed claims.
func (i *Issuer) Token(claims map[string]any) string {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.sign(jwt.SigningMethodRS256, i.key, i.all(claims))
}

// Unsigned returns a token with the algorithm none.
func (i *Issuer) Unsigned(claims map[string]any) string {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, i.all(claims))
}

// KeyAsSecret returns a token whose signature uses the published key as a shared secret.
func (i *Issuer) KeyAsSecret(claims map[string]any) string {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.sign(jwt.SigningMethodHS256, i.key.N.Bytes(), i.all(claims))
}

func (i *Issuer) all(claims map[string]any) jwt.MapClaims {
	now := i.now()
	all := jwt.MapClaims{"iss": i.server.URL, "aud": Client, "sub": "user-1", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	return all
}

func (i *Issuer) sign(method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = fmt.Sprint("key-", i.serial)
	signed, err := token.SignedString(key)
	if err != nil {
		i.t.Fatal(err)
	}
	return signed
}

func (i *Issuer) discovery(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{
		"issuer": i.server.URL, "jwks_uri": i.server.URL + "/keys", "authorization_endpoint": i.server.URL + "/authorize",
		"token_endpoint": i.server.URL + "/token", "id_token_signing_alg_values_supported": []string{"RS256"},
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
	})
}

func (i *Issuer) keys(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fetches++
	answer(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{
		Key: i.key.Public(), KeyID: fmt.Sprint("key-", i.serial), Algorithm: "RS256", Use: "sig",
	}}})
}

func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case q.Get("client_id") != Client, q.Get("redirect_uri") != i.redirect, q.Get("response_type") != "code",
		q.Get("code_challenge_method") != "S256", q.Get("code_challenge") == "", q.Get("state") == "", q.Get("nonce") == "",
		!strings.Contains(q.Get("scope"), "openid"):
		http.Error(w, "bad request: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	code := rand.Text()
	i.codes[code] = grant{challenge: q.Get("code_challenge"), nonce: q.Get("nonce"), redirect: q.Get("redirect_uri")}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	client, secret, ok := r.BasicAuth()
	if !ok {
		client, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	g, known := i.codes[r.FormValue("code")]
	delete(i.codes, r.FormValue("code"))
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	switch {
	case client != Client || subtle.ConstantTimeCompare([]byte(secret), []byte(Secret)) != 1:
		answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	case !known || base64.RawURLEncoding.EncodeToString(sum[:]) != g.challenge || r.FormValue("redirect_uri") != g.redirect:
		answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	claims := i.all(i.user)
	claims["nonce"] = g.nonce
	if i.spoil != nil {
		i.spoil(claims)
	}
	answer(w, http.StatusOK, map[string]any{
		"access_token": "opaque", "token_type": "Bearer", "expires_in": 3600,
		"id_token": i.sign(jwt.SigningMethodRS256, i.key, claims),
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a disconnected client is not an error
}
