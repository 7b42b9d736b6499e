package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// fetchTimeout is the timeout of a request to an issuer.
const fetchTimeout = 5 * time.Second

var (
	// ErrUnavailable means that a token cannot be verified now, because its issuer does not answer.
	ErrUnavailable = errors.New("the issuer of the token cannot be asked now")
	// ErrInvalid means that a token is rejected. It has no details, because they could contain parts of the token.
	ErrInvalid = errors.New("the token is not accepted")
)

// algorithms contains no symmetric one: a public key must never serve as a shared secret.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// BearerToken returns the token in the Authorization header of a request.
func BearerToken(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}

// Verifier accepts unexpired JSON Web Tokens of an issuer for an audience.
type Verifier struct{ tokens *oidc.IDTokenVerifier }

// NewVerifier creates a verifier. A valid token has the claims iss and aud, and a signature of one of the keys with an asymmetric
// algorithm. now is the clock for expiry.
func NewVerifier(issuer, audience string, keys oidc.KeySet, now func() time.Time) *Verifier {
	return &Verifier{oidc.NewVerifier(issuer, recordingKeySet{keys}, &oidc.Config{
		ClientID: audience, SupportedSigningAlgs: algorithms, Now: now,
	})}
}

// Verify verifies a token within five seconds, including fetching keys. The error is ErrInvalid, or wraps ErrUnavailable.
func (v *Verifier) Verify(ctx context.Context, token string) (*oidc.IDToken, error) {
	var unreachable error
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, noteKey{}, &unreachable), fetchTimeout)
	defer cancel()
	verified, err := v.tokens.Verify(ctx, token)
	switch {
	case unreachable != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, unreachable)
	case err != nil:
		return nil, ErrInvalid // the verifier's error can contain claims of the token
	}
	return verified, nil
}

// RemoteKeys returns the keys that an issuer publishes at a URL. They are fetched when a token needs them, at most once every two
// seconds, however many tokens refer to unknown keys.
func RemoteKeys(ctx context.Context, url string, now func() time.Time) oidc.KeySet {
	client := &http.Client{Timeout: fetchTimeout, Transport: &cachedTransport{next: http.DefaultTransport, now: now}}
	// The key set is used after the start; the client limits each read.
	return oidc.NewRemoteKeySet(oidc.ClientContext(context.WithoutCancel(ctx), client), url)
}

type noteKey struct{}

// recordingKeySet distinguishes unavailable keys from an invalid signature, which the verifier's error does not.
type recordingKeySet struct{ oidc.KeySet }

func (n recordingKeySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := n.KeySet.VerifySignature(ctx, token)
	if err != nil && strings.HasPrefix(err.Error(), "fetching keys") {
		if note, ok := ctx.Value(noteKey{}).(*error); ok {
			*note = err
		}
	}
	return payload, err
}

const (
	fetchEvery = 2 * time.Second
	maxKeySet  = 1 << 20
)

// cachedTransport repeats its last successful answer for a short time. It is for one URL.
type cachedTransport struct {
	next http.RoundTripper
	now  func() time.Time

	mu      sync.Mutex
	fetched time.Time
	header  http.Header
	body    []byte
}

// RoundTrip fetches the URL, or repeats the last answer.
func (p *cachedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := p.now().Sub(p.fetched); p.body == nil || since >= fetchEvery || since < 0 {
		response, err := p.next.RoundTrip(r)
		if err != nil || response.StatusCode != http.StatusOK {
			return response, err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(io.LimitReader(response.Body, maxKeySet+1))
		if err != nil {
			return nil, err
		}
		if len(body) > maxKeySet {
			return nil, fmt.Errorf("the key set has more than %d bytes", maxKeySet)
		}
		p.fetched, p.header, p.body = p.now(), response.Header, body
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: p.header.Clone(),
		Body: io.NopCloser(bytes.NewReader(p.body)), ContentLength: int64(len(p.body)), Request: r,
	}, nil
}
