package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// maxToken is the maximum length of a token.
const maxToken = 16 << 10

// Deps are the dependencies of an Authenticator. All have defaults: no log, time.Now.
type Deps struct {
	Log *slog.Logger
	Now func() time.Time
}

func (d Deps) withDefaults() Deps {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	return d
}

// Error is a rejection. Its message can be shown to the client.
type Error struct {
	// Status is 401, 403, 429 or 503.
	Status int
	// Message is the reason, without the credentials.
	Message string
	// RetryAfter is the delay before a retry; zero means unspecified.
	RetryAfter time.Duration
	// Presented reports whether the request contained credentials, which are wrong.
	Presented bool
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Authenticator authenticates the owners of tokens. It is safe for concurrent use, and has no goroutines.
type Authenticator struct {
	cfg     Config
	deps    Deps
	tokens  *tokenFile
	issuer  *issuer
	limit   *limiter
	trusted []netip.Prefix
}

// New creates an authenticator. The token file must be valid now. The issuer is queried when the first token arrives, so it may be
// unavailable until then.
func New(cfg Config, deps Deps) (*Authenticator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	deps = deps.withDefaults()
	a := &Authenticator{cfg: cfg, deps: deps, limit: newLimiter(deps.Now)}
	var err error
	if a.trusted, err = cfg.proxies(); err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	if cfg.TokensFile != "" {
		if a.tokens, err = openTokens(cfg.TokensFile, deps.Now, deps.Log); err != nil {
			return nil, fmt.Errorf("access: KEB_ACCESS_TOKENS_FILE: %w", err)
		}
	}
	if cfg.OIDCIssuer != "" {
		a.issuer = &issuer{cfg: cfg, now: deps.Now, log: deps.Log}
	}
	return a, nil
}

// Enabled reports whether clients must authenticate.
func (a *Authenticator) Enabled() bool { return a.cfg.Enabled() }

// local reports whether clients need not authenticate because only this machine should reach the address.
func (a *Authenticator) local() bool { return !a.Enabled() && a.cfg.Mode != ModeNone }

// Methods returns the login methods, Token and OIDC; none if access control is off.
func (a *Authenticator) Methods() []Authentication {
	methods := []Authentication{}
	if a.tokens != nil {
		methods = append(methods, Token)
	}
	if a.issuer != nil {
		methods = append(methods, OIDC)
	}
	return methods
}

// Authenticate returns the owner of a request's bearer token. If access control is off, it is Anonymous. Every error is an
// *Error.
func (a *Authenticator) Authenticate(r *http.Request) (Identity, error) {
	if !a.Enabled() {
		return Identity{Name: Anonymous, Role: Operator, Authentication: None}, nil
	}
	if r.Header.Get("Authorization") == "" {
		return Identity{}, a.missing()
	}
	if len(r.Header.Values("Authorization")) > 1 {
		// A proxy in front of this service may have checked the other header.
		return Identity{}, a.refused(r, "there is more than one Authorization header")
	}
	token, ok := BearerToken(r)
	if !ok {
		return Identity{}, a.refused(r, "the Authorization header is not of the form: Bearer <token>")
	}
	return a.Check(r, token)
}

// Check returns the owner of a token. Every error is an *Error.
func (a *Authenticator) Check(r *http.Request, token string) (Identity, error) {
	i, err := a.identify(r.Context(), token)
	return a.judged(r, i, err)
}

func (a *Authenticator) judged(r *http.Request, i Identity, err error) (Identity, error) {
	switch {
	case err == nil:
		return i, nil
	case errors.Is(err, ErrUnavailable):
		a.deps.Log.Debug("token not verified", "err", err)
		return Identity{}, &Error{
			Status: http.StatusServiceUnavailable, RetryAfter: discoverEvery,
			Message: "the OIDC issuer " + a.cfg.OIDCIssuer + " does not answer, so this token cannot be checked; try again",
		}
	default:
		return Identity{}, a.refused(r, "the token is unknown, expired or not for this service")
	}
}

func (a *Authenticator) identify(ctx context.Context, token string) (Identity, error) {
	if token == "" || len(token) > maxToken {
		return Identity{}, ErrInvalid
	}
	if a.tokens != nil {
		if i, ok := a.byHash(hashOf(token)); ok {
			return i, nil
		}
	}
	// Query the issuer only for a text that looks like a signed token.
	if a.issuer == nil || strings.Count(token, ".") != 2 {
		return Identity{}, ErrInvalid
	}
	return a.issuer.identify(ctx, token, "")
}

// byHash returns the owner of a static token.
func (a *Authenticator) byHash(hash string) (Identity, bool) {
	if a.tokens == nil {
		return Identity{}, false
	}
	sum, err := sumOf(hash)
	if err != nil {
		return Identity{}, false
	}
	e := a.tokens.current().find(sum)
	if e == nil {
		return Identity{}, false
	}
	return Identity{Name: e.name, Role: e.role, Authentication: Token, tokenHash: hash}, true
}

func (a *Authenticator) missing() error {
	return &Error{Status: http.StatusUnauthorized, Message: "credentials are required: log in, or send Authorization: Bearer <token>"}
}

// refused counts the failure and returns the error for it, or for too many failures.
func (a *Authenticator) refused(r *http.Request, message string) error {
	addr := address(r, a.trusted)
	if wait := a.limit.fail(addr); wait > 0 {
		return &Error{
			Status: http.StatusTooManyRequests, RetryAfter: wait, Presented: true,
			Message: "too many failed attempts from your address; " + message,
		}
	}
	a.deps.Log.Warn("credentials refused", "addr", addr, "reason", message)
	return &Error{Status: http.StatusUnauthorized, Message: message, Presented: true}
}
