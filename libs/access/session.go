package access

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/oauth2"

	"github.com/kyma-project/keb/libs/seal"
)

const (
	sessionName = "keb-session"
	loginName   = "keb-login"
	// loginTimeout is the maximum duration of a login at the issuer.
	loginTimeout = 10 * time.Minute
	// maxCookie is the maximum size of a cookie in browsers.
	maxCookie = 4096
)

// Sessions are the sessions of browsers. A session is stored only in its sealed cookie, so every replica with the same key accepts it.
// Its role is looked up for each request.
type Sessions struct {
	auth   *Authenticator
	keys   *seal.Keyring
	secure bool
}

// NewSessions creates sessions for identities of an authenticator. With secure, browsers send the cookies only over TLS.
func NewSessions(a *Authenticator, secure bool) (*Sessions, error) {
	key := a.cfg.SessionKey
	if key == "" {
		key = "process:" + seal.NewKey()
		if a.Enabled() {
			a.deps.Log.Warn("console sessions end with this process and are unknown to other replicas: set KEB_ACCESS_SESSION_KEY to keep them")
		}
	}
	keys, err := seal.ParseKeyring(key)
	if err != nil {
		return nil, fmt.Errorf("KEB_ACCESS_SESSION_KEY: %w", err)
	}
	return &Sessions{auth: a, keys: keys, secure: secure}, nil
}

// session is the content of a cookie.
type session struct {
	Authentication Authentication `json:"a"`
	Expires        time.Time      `json:"e"`
	// TokenHash is the hash of a static token, whose owner is looked up again.
	TokenHash string `json:"t,omitempty"`
	// The following members are for OIDC.
	Name    string   `json:"n,omitempty"`
	Subject string   `json:"s,omitempty"`
	Groups  []string `json:"g,omitempty"`
}

// Start starts a session if the user has a role; otherwise the error is an *Error. The session ends after the configured lifetime, or
// with an OIDC token.
func (s *Sessions) Start(w http.ResponseWriter, i Identity) error {
	if i.Role == "" {
		return &Error{Status: http.StatusForbidden, Message: i.Name + " has no role here"}
	}
	now := s.auth.deps.Now()
	content := session{Authentication: i.Authentication, Expires: now.Add(s.auth.cfg.lifetime())}
	switch i.Authentication {
	case Token:
		content.TokenHash = i.tokenHash
	case OIDC:
		content.Name, content.Subject, content.Groups = i.Name, i.Subject, i.groups
		if i.Expires.Before(content.Expires) {
			content.Expires = i.Expires
		}
	default:
		return errors.New("start session: access control is off")
	}
	return s.set(w, s.name(sessionName), http.SameSiteStrictMode, content, content.Expires.Sub(now))
}

// End ends the session.
func (s *Sessions) End(w http.ResponseWriter) {
	s.drop(w, s.name(sessionName), http.SameSiteStrictMode)
}

// Identify returns the owner of a browser's session; ok is false without a cookie. Every error is an *Error.
func (s *Sessions) Identify(r *http.Request) (i Identity, ok bool, err error) {
	var content session
	found, err := s.get(r, s.name(sessionName), &content)
	if !found {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, true, &Error{Status: http.StatusUnauthorized, Message: "the session is over: log in again"}
	}
	i, live := s.auth.resume(content)
	if !live {
		return Identity{}, true, &Error{Status: http.StatusUnauthorized, Message: "the session is over: log in again"}
	}
	return i, true, nil
}

// resume returns the current identity of a session.
func (a *Authenticator) resume(content session) (Identity, bool) {
	if !a.deps.Now().Before(content.Expires) {
		return Identity{}, false
	}
	switch {
	case content.Authentication == Token:
		i, ok := a.byHash(content.TokenHash)
		i.Expires = content.Expires
		return i, ok
	case content.Authentication == OIDC && a.issuer != nil:
		return Identity{
			Name: content.Name, Role: a.cfg.role(content.Groups), Authentication: OIDC, Subject: content.Subject,
			Expires: content.Expires, groups: content.Groups,
		}, true
	}
	return Identity{}, false
}

// login is the content of the cookie during a login at the issuer.
type login struct {
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"`
	Next     string    `json:"x"`
	Expires  time.Time `json:"e"`
}

// Begin redirects a browser to the issuer, which redirects it to redirectURL. Finish returns next. The error is an *Error.
func (s *Sessions) Begin(w http.ResponseWriter, r *http.Request, redirectURL, next string) error {
	if s.auth.issuer == nil {
		return &Error{Status: http.StatusNotFound, Message: "there is no login by OIDC: KEB_ACCESS_OIDC_ISSUER is not set"}
	}
	flow, err := s.auth.issuer.flow(r.Context(), redirectURL)
	if err != nil {
		_, err = s.auth.judged(r, Identity{}, err)
		return err
	}
	content := login{
		State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: next,
		Expires: s.auth.deps.Now().Add(loginTimeout),
	}
	// The issuer's redirect comes from another site, so the cookie cannot be strict.
	if err := s.set(w, s.name(loginName), http.SameSiteLaxMode, content, loginTimeout); err != nil {
		return err
	}
	url := flow.AuthCodeURL(content.State, oauth2.S256ChallengeOption(content.Verifier), oauth2.SetAuthURLParam("nonce", content.Nonce))
	http.Redirect(w, r, url, http.StatusSeeOther)
	return nil
}

// Finish completes a login: it verifies the issuer's answer and starts a session. Every error is an *Error.
func (s *Sessions) Finish(w http.ResponseWriter, r *http.Request, redirectURL string) (i Identity, next string, err error) {
	var content login
	found, err := s.get(r, s.name(loginName), &content)
	s.drop(w, s.name(loginName), http.SameSiteLaxMode)
	q := r.URL.Query()
	switch {
	case s.auth.issuer == nil:
		return i, "", &Error{Status: http.StatusNotFound, Message: "there is no login by OIDC: KEB_ACCESS_OIDC_ISSUER is not set"}
	case !found || err != nil || !s.auth.deps.Now().Before(content.Expires):
		return i, "", s.auth.refused(r, "this login has taken too long, or was begun elsewhere: log in again")
	case q.Get("state") != content.State:
		return i, "", s.auth.refused(r, "this is not the login that this browser has begun: log in again")
	case q.Get("error") != "":
		return i, "", s.auth.refused(r, "the issuer refuses the login: "+clean(q.Get("error")))
	case q.Get("code") == "":
		return i, "", s.auth.refused(r, "the issuer has sent no code: log in again")
	}
	i, err = s.auth.issuer.exchange(r.Context(), redirectURL, q.Get("code"), content.Verifier, content.Nonce)
	if i, err = s.auth.judged(r, i, err); err != nil {
		return i, "", err
	}
	return i, content.Next, s.Start(w, i)
}

// name returns the name of a cookie. Browsers accept a cookie with its prefix only from this exact host. Another host of the domain
// could otherwise start a login and complete it here.
func (s *Sessions) name(base string) string {
	if s.secure {
		return "__Host-" + base
	}
	return base
}

func (s *Sessions) set(w http.ResponseWriter, name string, site http.SameSite, content any, age time.Duration) error {
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("set cookie: %w", err)
	}
	sealed, err := s.keys.Seal(text, []byte(name))
	if err != nil {
		return fmt.Errorf("set cookie: %w", err)
	}
	if len(sealed) > maxCookie-256 {
		return &Error{Status: http.StatusForbidden, Message: "the roles in the token are too many for a session"}
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // not secure only where there is no TLS, on a loopback address
		Name: name, Value: sealed, Path: "/", HttpOnly: true, Secure: s.secure, SameSite: site,
		MaxAge: max(1, int(age/time.Second)),
	})
	return nil
}

func (s *Sessions) drop(w http.ResponseWriter, name string, site http.SameSite) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // as above
		Name: name, Path: "/", HttpOnly: true, Secure: s.secure, SameSite: site, MaxAge: -1,
	})
}

func (s *Sessions) get(r *http.Request, name string, into any) (found bool, err error) {
	cookie, err := r.Cookie(name)
	if err != nil {
		return false, nil
	}
	text, err := s.keys.Open(cookie.Value, []byte(name))
	if err != nil {
		return true, err
	}
	return true, json.Unmarshal(text, into)
}
