package extclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/extclient"
)

// issuer is a token endpoint with a counter; its n-th token is "token-n".
type issuer struct {
	url    string
	issued atomic.Int64
	status atomic.Int64
	form   chan string
	hold   chan struct{} // unless nil, each answer waits for it
}

func newIssuer(t *testing.T, deps *extclient.Deps) *issuer {
	t.Helper()
	i := &issuer{form: make(chan string, 100)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		i.form <- user + ":" + password + " " + string(data)
		if i.hold != nil {
			<-i.hold
		}
		if status := i.status.Load(); status != 0 {
			w.WriteHeader(int(status))
			_, _ = io.WriteString(w, `{"error":"invalid_grant","error_description":"`+string(data)+`"}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"bearer","expires_in":3600}`, i.issued.Add(1))
	}))
	transport := &http.Transport{}
	deps.Transport = transport
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	i.url = server.URL
	return i
}

func TestToken_Valid_IsCached(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now := time.Now()
	deps := extclient.Deps{Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}}
	i := newIssuer(t, &deps)
	source := extclient.ClientCredentials(extclient.TokenConfig{URL: i.url, ClientID: "id", ClientSecret: "s", Scopes: []string{"a", "b"}}, deps)
	for range 3 {
		if token, err := source.Token(t.Context()); err != nil || token != "token-1" {
			t.Fatalf("token %q, error %v", token, err)
		}
	}
	if form := <-i.form; form != "id:s grant_type=client_credentials&scope=a+b" {
		t.Errorf("asked with %q", form)
	}
	mu.Lock()
	now = now.Add(time.Hour)
	mu.Unlock()
	if token, err := source.Token(t.Context()); err != nil || token != "token-2" {
		t.Errorf("after an hour: token %q, error %v", token, err)
	}
}

// Defect 9: the repeated call has its body (docs/contracts/defects.md).
func TestToken_Rejected_IsReplacedOnce(t *testing.T) {
	t.Parallel()
	deps := extclient.Deps{}
	i := newIssuer(t, &deps)
	source := extclient.PasswordGrant(extclient.TokenConfig{URL: i.url, ClientID: "id", Username: "u", Password: "p"}, deps)
	var bodies []string
	good := "Bearer token-2"
	c := serve(t, extclient.Config{}, source, extclient.Deps{}, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(data))
		if r.Header.Get("Authorization") != good {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	require.NoError(t, c.Do(t.Context(), extclient.Request{Method: http.MethodPost, Body: "payload"}, nil))
	if got := strings.Join(bodies, " "); got != `"payload" "payload"` {
		t.Errorf("bodies %s", got)
	}
	if form := <-i.form; form != "id: grant_type=password&password=p&username=u" {
		t.Errorf("asked with %q", form)
	}
	good = "nothing"
	err := c.Do(t.Context(), extclient.Request{Method: http.MethodPost, Body: "payload"}, nil)
	if !extclient.IsStatus(err, http.StatusUnauthorized) || len(bodies) != 4 {
		t.Errorf("after %d requests: %v", len(bodies), err)
	}
}

func TestToken_EndpointFails_ReturnsTemporaryError(t *testing.T) {
	t.Parallel()
	deps := extclient.Deps{}
	i := newIssuer(t, &deps)
	i.status.Store(http.StatusBadRequest)
	source := extclient.PasswordGrant(extclient.TokenConfig{URL: i.url, ClientID: "id", Username: "u", Password: "pass-canary"}, deps)
	c := serve(t, extclient.Config{}, source, extclient.Deps{}, func(http.ResponseWriter, *http.Request) { t.Error("the system was called") })
	err := c.Do(t.Context(), extclient.Request{Method: http.MethodGet, Route: "/x"}, nil)
	if !extclient.IsTemporary(err) || !strings.Contains(err.Error(), "status 400") || strings.Contains(err.Error(), "canary") {
		t.Errorf("got %v", err)
	}
}

func TestToken_ConcurrentCallers_ShareOne(t *testing.T) {
	t.Parallel()
	deps := extclient.Deps{}
	i := newIssuer(t, &deps)
	source := extclient.ClientCredentials(extclient.TokenConfig{URL: i.url, ClientID: "id"}, deps)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if _, err := source.Token(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := i.issued.Load(); n != 1 {
		t.Errorf("%d tokens were issued, want 1", n)
	}
}

// endpoint is a token endpoint without a network.
type endpoint func() *http.Response

func (e endpoint) RoundTrip(*http.Request) (*http.Response, error) { return e(), nil }

func TestToken_ConcurrentCallers_ShareError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		asked := 0
		deps := extclient.Deps{Transport: endpoint(func() *http.Response {
			asked++
			<-hold
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}
		})}
		source := extclient.ClientCredentials(extclient.TokenConfig{URL: "http://sys/token", ClientID: "id"}, deps)
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				if _, err := source.Token(t.Context()); err == nil {
					t.Error("a token out of nowhere")
				}
			})
		}
		synctest.Wait()
		close(hold)
		group.Wait()
		if asked != 1 {
			t.Errorf("the endpoint was asked %d times, want once", asked)
		}
		if _, err := source.Token(t.Context()); err == nil || asked != 2 {
			t.Errorf("a later caller: asked %d times, error %v", asked, err)
		}
	})
}

func TestToken_ContextEnds_StopsWaiting(t *testing.T) {
	t.Parallel()
	deps := extclient.Deps{}
	i := newIssuer(t, &deps)
	i.hold = make(chan struct{})
	defer close(i.hold)
	source := extclient.ClientCredentials(extclient.TokenConfig{URL: i.url, ClientID: "id", Timeout: time.Minute}, deps)
	first, cancelFirst := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _, _ = source.Token(first) })
	<-i.form
	waiting, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := source.Token(waiting); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	cancelFirst()
	group.Wait()
}
