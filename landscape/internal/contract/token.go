package contract

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// TokenLifetime is the lifetime of an access token.
const TokenLifetime = time.Hour

// Issuer issues and verifies the OAuth2 access tokens of one system. It rejects tokens of other systems. A token is signed, so it stays
// valid after a restart without being stored.
type Issuer struct {
	key []byte
	now func() time.Time
}

// NewIssuer derives the signing key from the system's name and its client secret or password.
func NewIssuer(system, secret string, now func() time.Time) *Issuer {
	key := sha256.Sum256([]byte("landscape token\x00" + system + "\x00" + secret))
	return &Issuer{key: key[:], now: now}
}

// Issue returns a token for a subject (a user or client id).
func (i *Issuer) Issue(subject string) string {
	body := base64.RawURLEncoding.EncodeToString([]byte(subject)) + "." + strconv.FormatInt(i.now().Add(TokenLifetime).Unix(), 10)
	return body + "." + i.sign(body)
}

// Subject returns the subject of the request's bearer token, and false if the token is missing, foreign, changed or expired.
func (i *Issuer) Subject(r *http.Request) (string, bool) {
	parts := strings.Split(Bearer(r), ".")
	if len(parts) != 3 || !hmac.Equal([]byte(i.sign(parts[0]+"."+parts[1])), []byte(parts[2])) {
		return "", false
	}
	subject, err := base64.RawURLEncoding.DecodeString(parts[0])
	until, err2 := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || err2 != nil || i.now().Unix() >= until {
		return "", false
	}
	return string(subject), true
}

func (i *Issuer) sign(body string) string {
	mac := hmac.New(sha256.New, i.key)
	mac.Write([]byte(body))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// TokenRequest validates a token request of a grant: basic authentication with the client's id and secret, form-encoded as RFC 6749 section 2.3.1
// requires, and a form with the grant type and exactly the given members, each once. Otherwise it records a violation, answers the request
// and returns false.
func TokenRequest(w http.ResponseWriter, r *http.Request, grant string, members ...string) (id, secret string, ok bool) {
	problem := ""
	user, password, hasBasic := r.BasicAuth()
	if err := ContentType(r, "application/x-www-form-urlencoded"); err != nil {
		RefuseToken(w, http.StatusBadRequest, "invalid_request", err.Error())
		return "", "", false
	}
	if err := Query(r); err != nil {
		RefuseToken(w, http.StatusBadRequest, "invalid_request", err.Error())
		return "", "", false
	}
	id, errID := url.QueryUnescape(user)
	secret, errSecret := url.QueryUnescape(password)
	switch {
	case r.ParseForm() != nil:
		problem = "form: not readable"
	case !hasBasic:
		problem = "header Authorization: must be Basic with the client id"
	case errID != nil || errSecret != nil || url.QueryEscape(id) != user:
		problem = "header Authorization: the client id must be percent-encoded"
	}
	for name, values := range r.PostForm {
		if name != "grant_type" && !slices.Contains(members, name) || len(values) != 1 {
			problem = "form: unknown or repeated: " + name
		}
	}
	for _, name := range members {
		if !r.PostForm.Has(name) {
			problem = "form: required: " + name
		}
	}
	if r.PostForm.Get("grant_type") != grant {
		Violation(r, "form: grant_type must be %s", grant)
		RefuseToken(w, http.StatusBadRequest, "unsupported_grant_type", "grant_type must be "+grant)
		return "", "", false
	}
	if problem != "" {
		Violation(r, "%s", problem)
		RefuseToken(w, http.StatusBadRequest, "invalid_request", problem)
		return "", "", false
	}
	return id, secret, true
}

// ClientCredentials returns the id and secret of a token request, from basic authentication or from the form (RFC 6749 section 2.3.1).
func ClientCredentials(r *http.Request) (id, secret string, ok bool) {
	if id, secret, ok = r.BasicAuth(); ok {
		return unescape(id), unescape(secret), true
	}
	id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	return id, secret, id != ""
}

// unescape decodes the form encoding that the RFC requires. Some clients omit it.
func unescape(s string) string {
	plain, err := url.QueryUnescape(s)
	if err != nil {
		return s
	}
	return plain
}

// SameSecret compares two secrets in constant time.
func SameSecret(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// Write answers with the token in the format of RFC 6749 section 5.1.
func (i *Issuer) Write(w http.ResponseWriter, subject, scope string) {
	w.Header().Set("Cache-Control", "no-store")
	body := map[string]any{"access_token": i.Issue(subject), "token_type": "bearer", "expires_in": int(TokenLifetime.Seconds())}
	if scope != "" {
		body["scope"] = scope
	}
	JSON(w, http.StatusOK, body)
}

// RefuseToken answers with an error in the format of RFC 6749 section 5.2.
func RefuseToken(w http.ResponseWriter, status int, code, description string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="landscape"`)
	}
	JSON(w, status, map[string]any{"error": code, "error_description": description})
}
