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

// fetchTimeout bounds one question to an issuer.
const fetchTimeout = 5 * time.Second

var (
	// ErrUnavailable means that a token cannot be judged now, because its issuer does not answer.
	ErrUnavailable = errors.New("the issuer of the token cannot be asked now")
	// ErrInvalid means that a token is not accepted. It says nothing more, for what it would say is in the token.
	ErrInvalid = errors.New("the token is not accepted")
)

// algorithms leaves out every symmetric one: a public key must never serve as a shared secret.
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

// Verifier accepts JSON Web Tokens that an issuer has signed for an audience and that have not expired.
type Verifier struct{ tokens *oidc.IDTokenVerifier }

// NewVerifier makes a verifier of tokens whose claims iss and aud are issuer and audience, and which one of the keys has signed with an
// asymmetric algorithm; now is the clock that expiry is checked with.
func NewVerifier(issuer, audience string, keys oidc.KeySet, now func() time.Time) *Verifier {
	return &Verifier{oidc.NewVerifier(issuer, noting{keys}, &oidc.Config{
		ClientID: audience, SupportedSigningAlgs: algorithms, Now: now,
	})}
}

// Verify checks a token, within five seconds, which fetching keys may take. The error is ErrInvalid, or wraps ErrUnavailable when the keys cannot be fetched.
func (v *Verifier) Verify(ctx context.Context, token string) (*oidc.IDToken, error) {
	var unreachable error
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, noteKey{}, &unreachable), fetchTimeout)
	defer cancel()
	verified, err := v.tokens.Verify(ctx, token)
	switch {
	case unreachable != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, unreachable)
	case err != nil:
		return nil, ErrInvalid // the verifier's error may quote the token's claims
	}
	return verified, nil
}

// RemoteKeys are the keys that an issuer publishes at a URL. They are fetched when a token needs them, at most once every
// two seconds however many tokens name unknown keys.
func RemoteKeys(ctx context.Context, url string, now func() time.Time) oidc.KeySet {
	client := &http.Client{Timeout: fetchTimeout, Transport: &paced{next: http.DefaultTransport, now: now}}
	// The key set outlives the start; the client bounds each read.
	return oidc.NewRemoteKeySet(oidc.ClientContext(context.WithoutCancel(ctx), client), url)
}

type noteKey struct{}

// noting tells keys that cannot be fetched from a bad signature, a difference that the verifier's error does not keep.
type noting struct{ oidc.KeySet }

func (n noting) VerifySignature(ctx context.Context, token string) ([]byte, error) {
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

// paced answers from its last success for a moment. It is for one URL.
type paced struct {
	next http.RoundTripper
	now  func() time.Time

	mu      sync.Mutex
	fetched time.Time
	header  http.Header
	body    []byte
}

// RoundTrip fetches, or repeats the last answer.
func (p *paced) RoundTrip(r *http.Request) (*http.Response, error) {
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
