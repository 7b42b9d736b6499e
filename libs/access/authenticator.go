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

// maxToken bounds what is taken for a token.
const maxToken = 16 << 10

// Deps is what an Authenticator works with. All have defaults: no log, time.Now.
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

// Error is a refusal. It is safe to be shown.
type Error struct {
	// Status is 401, 403, 429 or 503.
	Status int
	// Message says why, without what was presented.
	Message string
	// RetryAfter is when to try again; zero says nothing about it.
	RetryAfter time.Duration
	// Presented tells that there were credentials, which are wrong.
	Presented bool
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Authenticator finds out who presents a token. It is safe for concurrent use, and has no goroutines.
type Authenticator struct {
	cfg     Config
	deps    Deps
	tokens  *tokenFile
	issuer  *issuer
	limit   *limiter
	trusted []netip.Prefix
}

// New makes an authenticator. The token file must be good now; the issuer is asked when the first token comes, and may be away
// until then.
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

// Enabled reports whether anybody is asked who he is.
func (a *Authenticator) Enabled() bool { return a.cfg.Enabled() }

// local reports whether nobody is asked because nobody else should reach the address.
func (a *Authenticator) local() bool { return !a.Enabled() && a.cfg.Mode != ModeNone }

// Methods are the ways to log in, Token or OIDC; none where nobody is asked.
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

// Authenticate says who presents the bearer token of a request. Where nobody is asked it is Anonymous. Every error is an
// *Error.
func (a *Authenticator) Authenticate(r *http.Request) (Identity, error) {
	if !a.Enabled() {
		return Identity{Name: Anonymous, Role: Operator, Authentication: None}, nil
	}
	if r.Header.Get("Authorization") == "" {
		return Identity{}, a.missing()
	}
	if len(r.Header.Values("Authorization")) > 1 {
		// What is in front of this service may have looked at another one.
		return Identity{}, a.refused(r, "there is more than one Authorization header")
	}
	token, ok := BearerToken(r)
	if !ok {
		return Identity{}, a.refused(r, "the Authorization header is not of the form: Bearer <token>")
	}
	return a.Check(r, token)
}

// Check says whose a token is that came in a request. Every error is an *Error.
func (a *Authenticator) Check(r *http.Request, token string) (Identity, error) {
	i, err := a.identify(r.Context(), token)
	return a.judged(r, i, err)
}

func (a *Authenticator) judged(r *http.Request, i Identity, err error) (Identity, error) {
	switch {
	case err == nil:
		return i, nil
	case errors.Is(err, ErrUnavailable):
		a.deps.Log.Debug("token not judged", "err", err)
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
	// Only what looks like a signed token is worth a question to the issuer.
	if a.issuer == nil || strings.Count(token, ".") != 2 {
		return Identity{}, ErrInvalid
	}
	return a.issuer.identify(ctx, token, "")
}

// byHash finds the owner of a static token.
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

// refused counts the failure and says so, or that there were too many.
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
