// Package auth accepts bearer tokens in addition to the basic credentials of package
// osb: JSON Web Tokens of one issuer for one audience (docs/contracts/broker.md#requests).
package auth

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/osb"
)

// Config describes the accepted tokens.
type Config struct {
	// Issuer and Audience are the "iss" and "aud" claims of accepted tokens. Both are required.
	Issuer, Audience string
	// KeySetURL is the URL of the issuer's keys; KeySetFile is a file with the keys (JWKS). Set exactly one.
	KeySetURL, KeySetFile string
	// Scope is a scope that a token must have. Empty accepts any.
	Scope string
}

// Validate reports every missing or contradictory setting.
func (c Config) Validate() error {
	var errs []error
	if c.Issuer == "" {
		errs = append(errs, errors.New("the issuer is missing"))
	}
	if c.Audience == "" {
		errs = append(errs, errors.New("the audience is missing"))
	}
	if (c.KeySetURL == "") == (c.KeySetFile == "") {
		errs = append(errs, errors.New("set either the URL or the file of the key set"))
	}
	return errors.Join(errs...)
}

// JWT is an osb.Authenticator for bearer tokens.
type JWT struct {
	verifier *access.Verifier
	scope    string
}

// New creates the authenticator; now is the clock for expiry. New reads a key set file immediately. It fetches a key set URL when
// the first token arrives.
func New(ctx context.Context, cfg Config, now func() time.Time) (*JWT, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("bearer tokens: %w", err)
	}
	keys, err := cfg.keySet(ctx, now)
	if err != nil {
		return nil, fmt.Errorf("bearer tokens: %w", err)
	}
	return &JWT{verifier: access.NewVerifier(cfg.Issuer, cfg.Audience, keys, now), scope: cfg.Scope}, nil
}

func (c Config) keySet(ctx context.Context, now func() time.Time) (oidc.KeySet, error) {
	if c.KeySetURL != "" {
		return access.RemoteKeys(ctx, c.KeySetURL, now), nil
	}
	raw, err := os.ReadFile(c.KeySetFile)
	if err != nil {
		return nil, fmt.Errorf("read key set: %w", err)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, errors.New("read key set: the file is not a JSON Web Key Set")
	}
	static := &oidc.StaticKeySet{}
	for _, k := range set.Keys {
		if !k.Valid() || !k.IsPublic() {
			return nil, fmt.Errorf("read key set: key %q is not a valid public key", k.KeyID)
		}
		static.PublicKeys = append(static.PublicKeys, crypto.PublicKey(k.Key))
	}
	if len(static.PublicKeys) == 0 {
		return nil, errors.New("read key set: the file holds no key")
	}
	return static, nil
}

// Challenge asks for a bearer token.
func (*JWT) Challenge() string { return `Bearer realm="keb"` }

// Authenticate accepts a valid, unexpired token of the issuer with the audience and the scope. It returns 503 if the keys cannot
// be fetched, so that a platform with a valid token retries.
func (j *JWT) Authenticate(r *http.Request) (osb.Principal, error) {
	token, ok := access.BearerToken(r)
	if !ok {
		return osb.Principal{}, osb.ErrUnauthenticated
	}
	verified, err := j.verifier.Verify(r.Context(), token)
	if errors.Is(err, access.ErrUnavailable) {
		return osb.Principal{}, osb.Unavailable(err)
	}
	if err != nil {
		return osb.Principal{}, osb.ErrUnauthenticated
	}
	var claims struct {
		Scope    scopes `json:"scope"`
		ClientID string `json:"client_id"`
		AZP      string `json:"azp"`
	}
	if err := verified.Claims(&claims); err != nil {
		return osb.Principal{}, osb.ErrUnauthenticated
	}
	if j.scope != "" && !slices.Contains(claims.Scope, j.scope) {
		return osb.Principal{}, osb.ErrUnauthenticated
	}
	for _, name := range []string{claims.ClientID, claims.AZP, verified.Subject} {
		if name != "" {
			return osb.Principal{Name: name, Scheme: "bearer"}, nil
		}
	}
	return osb.Principal{Name: "unknown", Scheme: "bearer"}, nil
}

// scopes decodes both formats in use: one string of words, and an array.
type scopes []string

func (s *scopes) UnmarshalJSON(raw []byte) error {
	var words string
	if json.Unmarshal(raw, &words) == nil {
		*s = strings.Fields(words)
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(s))
}
