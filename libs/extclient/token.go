package extclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// TokenSource returns bearer tokens. It must be safe for concurrent use.
type TokenSource interface {
	// Token returns a token that should be valid.
	Token(ctx context.Context) (string, error)
	// Forget reports that a token was rejected, so that Token does not return it again.
	Forget(token string)
}

// TokenConfig describes an OAuth2 token endpoint.
type TokenConfig struct {
	// URL is the token endpoint.
	URL          string
	ClientID     string
	ClientSecret string
	// Username and Password are for the resource owner password grant.
	Username string
	Password string
	Scopes   []string
	// Params are additional form members of a client credentials grant, for example the resource for Azure.
	Params url.Values
	// Timeout is the timeout of one call; default 10 s.
	Timeout time.Duration
}

// ClientCredentials returns tokens of the OAuth2 client credentials grant. It caches a token until shortly before it expires.
func ClientCredentials(cfg TokenConfig, deps Deps) TokenSource {
	grant := &clientcredentials.Config{
		ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret, TokenURL: cfg.URL, Scopes: cfg.Scopes,
		EndpointParams: cfg.Params, AuthStyle: oauth2.AuthStyleInHeader,
	}
	return newTokens(cfg, deps, grant.Token)
}

// PasswordGrant returns tokens of the OAuth2 resource owner password grant (docs/contracts/avs.md#calls). It caches a token until
// shortly before it expires.
func PasswordGrant(cfg TokenConfig, deps Deps) TokenSource {
	grant := &oauth2.Config{
		ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret, Scopes: cfg.Scopes,
		Endpoint: oauth2.Endpoint{TokenURL: cfg.URL, AuthStyle: oauth2.AuthStyleInHeader},
	}
	return newTokens(cfg, deps, func(ctx context.Context) (*oauth2.Token, error) {
		return grant.PasswordCredentialsToken(ctx, cfg.Username, cfg.Password)
	})
}

// tokens caches one token. Callers that need a new one wait for the same call and share its error. An endpoint that does not answer
// therefore blocks all of them only once.
type tokens struct {
	timeout time.Duration
	client  *http.Client
	now     func() time.Time
	fetch   func(context.Context) (*oauth2.Token, error)

	// fetching has one slot, which guards a call to the endpoint. It is a channel so that waiting for it ends with the context.
	fetching chan struct{}

	mu    sync.Mutex
	token *oauth2.Token
	// calls counts the completed calls, and failed is the error of the last one.
	calls  int
	failed error
}

// expiryMargin is the time before its expiry from which a token is no longer used.
const expiryMargin = 20 * time.Second

func newTokens(cfg TokenConfig, deps Deps, fetch func(context.Context) (*oauth2.Token, error)) *tokens {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	return &tokens{
		timeout: cfg.Timeout, now: deps.Clock(), fetch: fetch, fetching: make(chan struct{}, 1),
		client: &http.Client{Transport: Trace("", tokenCall, deps.Transport), CheckRedirect: noRedirect},
	}
}

// Token implements TokenSource.
func (t *tokens) Token(ctx context.Context) (string, error) {
	token, calls, _ := t.kept()
	if token != "" {
		return token, nil
	}
	select {
	case t.fetching <- struct{}{}:
	case <-ctx.Done():
		return "", fmt.Errorf("get token: %w", ctx.Err())
	}
	defer func() { <-t.fetching }()
	token, callsNow, failed := t.kept()
	if token != "" || (failed != nil && callsNow > calls) {
		return token, failed
	}
	return t.get(ctx)
}

// kept returns the cached token if it is valid, and the result of the last call.
func (t *tokens) kept() (token string, calls int, failed error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != nil && (t.token.Expiry.IsZero() || t.now().Add(expiryMargin).Before(t.token.Expiry)) {
		return t.token.AccessToken, t.calls, nil
	}
	return "", t.calls, t.failed
}

func (t *tokens) get(ctx context.Context) (string, error) {
	limited, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	token, err := t.fetch(context.WithValue(limited, oauth2.HTTPClient, t.client))
	if err != nil {
		err = fmt.Errorf("get token: %w", tokenError(err))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	t.failed = nil
	if err != nil {
		// A cancelled caller does not indicate a failure of the endpoint.
		if ctx.Err() == nil {
			t.failed = err
		}
		return "", err
	}
	t.token = token
	return token.AccessToken, nil
}

// Forget implements TokenSource.
func (t *tokens) Forget(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != nil && t.token.AccessToken == token {
		t.token = nil
	}
}

// tokenError removes texts of the request and the answer from the library's errors.
func tokenError(err error) error {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return fmt.Errorf("token endpoint: status %d", refused.Response.StatusCode)
	}
	if call, ok := errors.AsType[*url.Error](err); ok {
		return Unanswered(call)
	}
	return errors.New("token endpoint: unreadable answer")
}

// tokenCall is the name of the spans of token calls, because their path may contain a tenant.
func tokenCall(*http.Request) string { return "token" }
