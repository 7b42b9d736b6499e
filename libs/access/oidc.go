package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	// discoverEvery is the interval between discovery requests to an issuer that does not answer.
	discoverEvery = 2 * time.Second
	// maxGroups is the maximum number of roles claim values in a session.
	maxGroups = 20
)

// issuer is an OpenID Connect issuer. Its discovery runs when the first token arrives.
type issuer struct {
	cfg Config
	now func() time.Time
	log *slog.Logger

	mu       sync.Mutex
	asked    time.Time
	err      error
	verifier *Verifier
	endpoint oauth2.Endpoint
}

// ready returns the result of the discovery. The error wraps ErrUnavailable.
func (i *issuer) ready(ctx context.Context) (*Verifier, oauth2.Endpoint, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.verifier != nil {
		return i.verifier, i.endpoint, nil
	}
	if since := i.now().Sub(i.asked); i.err != nil && since >= 0 && since < discoverEvery {
		return nil, oauth2.Endpoint{}, i.err
	}
	if err := i.discover(ctx); err != nil {
		if i.err == nil {
			i.log.Error("OIDC issuer does not answer, its tokens are rejected until it does", "issuer", i.cfg.OIDCIssuer, "err", err)
		}
		i.asked, i.err = i.now(), fmt.Errorf("%w: %w", ErrUnavailable, err)
		return nil, oauth2.Endpoint{}, i.err
	}
	if i.err != nil {
		i.log.Info("OIDC issuer answers again", "issuer", i.cfg.OIDCIssuer)
	}
	i.err = nil
	return i.verifier, i.endpoint, nil
}

func (i *issuer) discover(ctx context.Context) error {
	// If a client disconnects, the discovery continues for the other waiting clients.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, &http.Client{Timeout: fetchTimeout}), i.cfg.OIDCIssuer)
	if err != nil {
		return fmt.Errorf("discover %s: %w", i.cfg.OIDCIssuer, err)
	}
	var published struct {
		KeysURL string `json:"jwks_uri"`
	}
	if err := provider.Claims(&published); err != nil || published.KeysURL == "" {
		return fmt.Errorf("discover %s: its configuration contains no URL of its keys", i.cfg.OIDCIssuer)
	}
	i.verifier = NewVerifier(i.cfg.OIDCIssuer, i.cfg.OIDCAudience, RemoteKeys(ctx, published.KeysURL, i.now), i.now)
	i.endpoint = provider.Endpoint()
	return nil
}

// identify verifies a token and returns its owner. A nonce, if given, must be that of the token. The error is ErrInvalid or wraps
// ErrUnavailable.
func (i *issuer) identify(ctx context.Context, token, nonce string) (Identity, error) {
	verifier, _, err := i.ready(ctx)
	if err != nil {
		return Identity{}, err
	}
	verified, err := verifier.Verify(ctx, token)
	if err != nil {
		return Identity{}, err
	}
	if nonce != "" && verified.Nonce != nonce {
		return Identity{}, ErrInvalid
	}
	var claims map[string]any
	if err := verified.Claims(&claims); err != nil {
		return Identity{}, ErrInvalid
	}
	values := rolesOf(claims, i.cfg.rolesClaim())
	return Identity{
		Name: nameOf(claims, verified.Subject), Role: i.cfg.role(values), Authentication: OIDC, Subject: clean(verified.Subject),
		Expires: verified.Expiry, groups: i.cfg.known(values),
	}, nil
}

// known returns the values of the roles claim that grant a role.
func (c Config) known(values []string) []string {
	var known []string
	for _, v := range values {
		if c.role([]string{v}) != "" && len(known) < maxGroups {
			known = append(known, v)
		}
	}
	return known
}

// rolesOf returns the values of a claim with this exact name, or at the end of this path.
func rolesOf(claims map[string]any, name string) []string {
	value, ok := claims[name]
	if !ok {
		path := strings.Split(name, ".")
		for _, part := range path[:len(path)-1] {
			claims, _ = claims[part].(map[string]any) // a nil map has no claims
		}
		value = claims[path[len(path)-1]]
	}
	switch v := value.(type) {
	case string:
		if name == "scope" || name == "scp" {
			return strings.Fields(v) // by RFC 8693 a list in one string
		}
		return []string{v}
	case []any:
		var values []string
		for _, e := range v {
			if s, ok := e.(string); ok {
				values = append(values, s)
			}
		}
		return values
	}
	return nil
}

// nameOf returns the display name of a token's owner, or the subject, which is always set.
func nameOf(claims map[string]any, subject string) string {
	for _, claim := range []string{"preferred_username", "email", "client_id", "azp"} {
		if claim == "azp" && claims["sub"] != claims["azp"] {
			continue // the person's client, not the person
		}
		if s, ok := claims[claim].(string); ok && clean(s) != "" {
			return clean(s)
		}
	}
	if subject = clean(subject); subject != "" {
		return subject
	}
	return "unknown"
}

// clean makes external text safe for logs and pages.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	s = strings.TrimSpace(s)
	if len(s) > maxName {
		s = strings.ToValidUTF8(s[:maxName], "")
	}
	return s
}

// exchange exchanges the code of a login for an ID token, and returns its identity. The error is ErrInvalid or wraps
// ErrUnavailable.
func (i *issuer) exchange(ctx context.Context, redirectURL, code, verifier, nonce string) (Identity, error) {
	flow, err := i.flow(ctx, redirectURL)
	if err != nil {
		return Identity{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*fetchTimeout)
	defer cancel()
	ctx = oidc.ClientContext(ctx, &http.Client{Timeout: fetchTimeout})
	answer, err := flow.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		refusal, ok := errors.AsType[*oauth2.RetrieveError](err)
		if ok && refusal.Response != nil && refusal.Response.StatusCode < http.StatusInternalServerError {
			i.log.Warn("OIDC issuer rejected the code of a login", "issuer", i.cfg.OIDCIssuer, "code", clean(refusal.ErrorCode))
			return Identity{}, ErrInvalid
		}
		return Identity{}, fmt.Errorf("%w: %s", ErrUnavailable, "the exchange of the code failed")
	}
	token, ok := answer.Extra("id_token").(string)
	if !ok {
		return Identity{}, fmt.Errorf("%w: the answer contains no ID token", ErrUnavailable)
	}
	return i.identify(ctx, token, nonce)
}

func (i *issuer) flow(ctx context.Context, redirectURL string) (*oauth2.Config, error) {
	_, endpoint, err := i.ready(ctx)
	if err != nil {
		return nil, err
	}
	return &oauth2.Config{
		ClientID: i.cfg.OIDCAudience, ClientSecret: i.cfg.OIDCClientSecret, Endpoint: endpoint, RedirectURL: redirectURL,
		Scopes: i.cfg.scopes(),
	}, nil
}

// scopes returns the scopes of a login.
func (c Config) scopes() []string {
	if len(c.OIDCScopes) > 0 {
		return c.OIDCScopes
	}
	scopes := []string{oidc.ScopeOpenID, "profile", "email"}
	if c.rolesClaim() == defaultRolesClaim {
		scopes = append(scopes, "groups")
	}
	return scopes
}
