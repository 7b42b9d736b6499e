package access

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
)

func TestAuthenticator_ManyFailures_Returns429(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	guard := NewGuard(b.auth, nil)
	from := func(addr, token string) *http.Response {
		r := request(t, token)
		r.RemoteAddr = addr
		response, _ := ask(t, guard.Protect, r)
		return response
	}
	const bad, other = "192.0.2.1:1", "192.0.2.2:1"
	for n := range maxFailures {
		if response := from(bad, "wrong"); response.StatusCode != http.StatusUnauthorized {
			t.Fatalf("attempt %d: %s", n+1, response.Status)
		}
	}
	response := from(bad, "wrong")
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "3" {
		t.Errorf("one too many: %s, Retry-After %q", response.Status, response.Header.Get("Retry-After"))
	}
	if n := strings.Count(b.log.String(), "credentials refused"); n != maxFailures {
		t.Errorf("logged %d times", n)
	}
	// Clients with valid tokens at the same address are not affected.
	for _, token := range []string{viewerToken, b.issuer.Token(groups("admins"))} {
		if response := from(bad, token); response.StatusCode != http.StatusNoContent {
			t.Errorf("a good token of the same address: %s", response.Status)
		}
	}
	if response := from(other, "wrong"); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("another address: %s", response.Status)
	}
	b.clock.Advance(failureEvery)
	if response := from(bad, "wrong"); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("later: %s", response.Status)
	}
	if response := from(bad, "wrong"); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("once more: %s", response.Status)
	}
}

func TestLimiter_ManyAddresses_LimitsMemory(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock(time.Now())
	l := newLimiter(clock.Now)
	for n := range 3 * maxAddresses {
		l.fail(fmt.Sprint(n))
	}
	if len(l.byAddr) != maxAddresses || l.recent.Len() != maxAddresses {
		t.Errorf("%d and %d addresses are kept", len(l.byAddr), l.recent.Len())
	}
	if _, ok := l.byAddr[fmt.Sprint(3*maxAddresses-1)]; !ok {
		t.Error("the newest address is forgotten")
	}
}

func TestAddress_TrustedProxies_ReturnsClient(t *testing.T) {
	t.Parallel()
	trusted, err := Config{TrustedProxies: []string{"10.0.0.0/8", " 192.0.2.7", "fd00::/8"}}.proxies()
	require.NoError(t, err)
	for _, tc := range []struct{ peer, header, want string }{
		{"203.0.113.1:1", "", "203.0.113.1"},
		{"203.0.113.1:1", "198.51.100.1", "203.0.113.1"}, // not a trusted proxy: it can forge the header
		{"10.1.2.3:1", "198.51.100.1", "198.51.100.1"},
		{"10.1.2.3:1", "1.1.1.1, 198.51.100.1", "198.51.100.1"}, // the client forged the first entry
		{"10.1.2.3:1", "198.51.100.1, 10.9.9.9, 192.0.2.7", "198.51.100.1"},
		{"10.1.2.3:1", "198.51.100.1, nonsense", "10.1.2.3"},
		{"10.1.2.3:1", "", "10.1.2.3"},
		{"[::ffff:203.0.113.1]:1", "", "203.0.113.1"},
		{"[2001:db8:1:2:3:4:5:6]:1", "", "2001:db8:1:2::/64"},
		{"[2001:db8:1:2:ffff::1%eth0]:1", "", "2001:db8:1:2::/64"},
		{"@", "", "@"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = tc.peer
		if tc.header != "" {
			r.Header.Set("X-Forwarded-For", tc.header)
		}
		if got := address(r, trusted); got != tc.want {
			t.Errorf("%s %q: %s, want %s", tc.peer, tc.header, got, tc.want)
		}
	}
}
