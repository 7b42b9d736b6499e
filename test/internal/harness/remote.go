package harness

import (
	"net/http"
	"testing"
	"time"
)

// Remote is the address of a system that the test has not started, and the credentials for it.
type Remote struct {
	OSBAddr, OperatorAddr, LandscapeAddr string
	// Password is that of the user keb of the OSB API, Token a token of the operator API.
	Password, Token string
}

// Connect is a system that runs already. Starting, killing and stopping it is not for this type.
func Connect(t testing.TB, r Remote) *System {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	t.Cleanup(transport.CloseIdleConnections)
	s := &System{
		OSBAddr: r.OSBAddr, OperatorAddr: r.OperatorAddr, LandscapeAddr: r.LandscapeAddr,
		HTTP:     &http.Client{Transport: bearer{transport, r.OperatorAddr, r.Token}, Timeout: 30 * time.Second},
		t:        t,
		password: r.Password,
	}
	t.Cleanup(s.checkContracts)
	return s
}

// bearer shows a token to one host.
type bearer struct {
	next        http.RoundTripper
	host, token string
}

// RoundTrip is that of the transport, with the token.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == b.host {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}
