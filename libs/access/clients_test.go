package access

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
)

// from returns a request of a client.
func from(t *testing.T, addr, path string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.RemoteAddr = addr + ":1"
	return r
}

func refuseClient(w http.ResponseWriter, _ *http.Request, e *Error) { Refuse(w, e) }

func newClients(t *testing.T, clock *testkit.Clock, limits ClientLimits) *Clients {
	t.Helper()
	c, err := NewClients(Config{Clients: limits, TrustedProxies: []string{"10.0.0.1"}}, clock.Now)
	require.NoError(t, err)
	return c
}

func TestClients_TooManyRequests_LimitOneClient(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock(time.Now())
	h := newClients(t, clock, ClientLimits{Rate: 2, Burst: 5}).Limit(http.NotFoundHandler(), nil, refuseClient)
	ask := func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	for range 5 {
		if got := ask(from(t, "192.0.2.1", "/")); got.StatusCode != http.StatusNotFound {
			t.Fatalf("within the burst: %s", got.Status)
		}
	}
	refused := ask(from(t, "192.0.2.1", "/"))
	if refused.StatusCode != http.StatusTooManyRequests || refused.Header.Get("Retry-After") != "1" || !strings.Contains(message(t, refused), "2 in a second") {
		t.Errorf("one too many: %s, Retry-After %q", refused.Status, refused.Header.Get("Retry-After"))
	}
	// The client's own X-Forwarded-For is ignored.
	spoofed := from(t, "192.0.2.1", "/")
	spoofed.Header.Set("X-Forwarded-For", "192.0.2.9")
	if got := ask(spoofed); got.StatusCode != http.StatusTooManyRequests {
		t.Errorf("with a made up address: %s", got.Status)
	}
	if got := ask(from(t, "192.0.2.2", "/")); got.StatusCode != http.StatusNotFound {
		t.Errorf("another client: %s", got.Status)
	}
	forwarded := from(t, "10.0.0.1", "/")
	forwarded.Header.Set("X-Forwarded-For", "192.0.2.1")
	if got := ask(forwarded); got.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the same client behind the proxy: %s", got.Status)
	}
	clock.Advance(time.Second / 2)
	if got := ask(from(t, "192.0.2.1", "/")); got.StatusCode != http.StatusNotFound {
		t.Errorf("half a second later: %s", got.Status)
	}
	if got := ask(from(t, "192.0.2.1", "/")); got.StatusCode != http.StatusTooManyRequests {
		t.Errorf("and once more: %s", got.Status)
	}
}

func TestClients_ConcurrentRequests_AreLimited(t *testing.T) {
	t.Parallel()
	inside, goOn := make(chan struct{}), make(chan struct{})
	c := newClients(t, testkit.NewClock(time.Now()), ClientLimits{Requests: 2})
	h := c.Limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/quick" {
			inside <- struct{}{}
			<-goOn
		}
	}), func(r *http.Request) bool { return r.URL.Path == "/endless" }, refuseClient)
	ask := func(addr, path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, from(t, addr, path))
		return w.Code
	}
	var wait sync.WaitGroup
	for _, path := range []string{"/slow", "/slow", "/endless"} {
		wait.Go(func() { ask("192.0.2.1", path) })
		<-inside
	}
	if got := ask("192.0.2.1", "/quick"); got != http.StatusTooManyRequests {
		t.Errorf("a third request: %d", got)
	}
	if got := ask("192.0.2.2", "/quick"); got != http.StatusOK {
		t.Errorf("another client: %d", got)
	}
	close(goOn)
	wait.Wait()
	if got := ask("192.0.2.1", "/quick"); got != http.StatusOK {
		t.Errorf("afterwards: %d", got)
	}
	if len(c.requests) != 0 {
		t.Errorf("%d clients are still counted", len(c.requests))
	}
}

func TestAttempts_ManyFailures_BlockAddress(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock(time.Now())
	a, err := NewAttempts(Config{}, clock.Now)
	require.NoError(t, err)
	platform, thief := from(t, "192.0.2.1", "/"), from(t, "192.0.2.2", "/")
	a.Succeeded(platform)
	for _, r := range []*http.Request{platform, thief} {
		for n := range maxFailures {
			if wait := a.Blocked(r) + a.Failed(r); wait != 0 {
				t.Fatalf("attempt %d of %s has to wait %s", n+1, r.RemoteAddr, wait)
			}
		}
		if wait := a.Failed(r); wait != failureEvery {
			t.Errorf("the next attempt of %s has to wait %s", r.RemoteAddr, wait)
		}
	}
	if wait := a.Blocked(thief); wait != failureEvery {
		t.Errorf("the thief has to wait %s", wait)
	}
	if wait := a.Blocked(platform); wait != 0 {
		t.Errorf("the client with earlier correct credentials has to wait %s", wait)
	}
	clock.Advance(failureEvery)
	if wait := a.Blocked(thief); wait != 0 {
		t.Errorf("later the thief has to wait %s", wait)
	}
	clock.Advance(knownFor)
	for range maxFailures + 1 {
		a.Failed(platform)
	}
	if wait := a.Blocked(platform); wait == 0 {
		t.Error("good credentials of long ago still count")
	}
}

func TestAuthenticate_TwoHeaders_AreRejected(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	r := request(t, operatorToken)
	r.Header.Add("Authorization", "Bearer "+viewerToken)
	if response, _ := ask(t, NewGuard(b.auth, nil).Protect, r); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %s", response.Status)
	}
}

func TestClientLimits_Invalid_AreNamed(t *testing.T) {
	t.Parallel()
	err := Config{Clients: ClientLimits{Rate: -1, Burst: maxLimit + 1, Requests: -1}}.Validate()
	for _, name := range []string{"KEB_CLIENT_RATE", "KEB_CLIENT_BURST", "KEB_CLIENT_REQUESTS"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
}

func TestAttempts_NoFailureForHours_DoesNotBlock(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock(time.Now())
	a, err := NewAttempts(Config{}, clock.Now)
	require.NoError(t, err)
	platform := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	a.Succeeded(platform)
	clock.Advance(2 * knownFor)
	if wait := a.Blocked(platform); wait != 0 {
		t.Errorf("an address without a failure must wait %s", wait)
	}
}
