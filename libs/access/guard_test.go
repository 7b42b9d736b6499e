package access

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGuard_Roles_LimitMethods(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	var refused []string
	guard := NewGuard(b.auth, nil)
	guard.OnRefusal(func(r *http.Request, i Identity, reason string) {
		refused = append(refused, i.Name+" "+r.Method+": "+reason)
	})
	for _, tc := range []struct {
		token, method string
		want          int
	}{
		{viewerToken, "GET", 204},
		{viewerToken, "HEAD", 204},
		{viewerToken, "POST", 403},
		{viewerToken, "PUT", 403},
		{viewerToken, "PATCH", 403},
		{viewerToken, "DELETE", 403},
		{viewerToken, "OPTIONS", 403},
		{viewerToken, "get", 403},
		{viewerToken, "PROPFIND", 403},
		{operatorToken, "GET", 204},
		{operatorToken, "POST", 204},
		{operatorToken, "DELETE", 204},
		{b.issuer.Token(groups("other")), "GET", 403},
		{b.issuer.Token(groups("keb-viewers")), "GET", 204},
		{b.issuer.Token(groups("keb-viewers")), "POST", 403},
		{"", "GET", 401},
		{"", "POST", 401},
		{"wrong", "GET", 401},
	} {
		r := request(t, tc.token)
		r.Method = tc.method
		if response, _ := ask(t, guard.Protect, r); response.StatusCode != tc.want {
			t.Errorf("%s %.20q: %s, want %d", tc.method, tc.token, response.Status, tc.want)
		} else if cached := response.Header.Get("Cache-Control"); cached != "no-store" {
			t.Errorf("%s %.20q: Cache-Control %q", tc.method, tc.token, cached)
		}
	}
	if len(refused) != 9 || refused[0] != "vera POST: vera has the role viewer, and this needs the role operator" {
		t.Errorf("refusals: %q", refused)
	}
	r := request(t, viewerToken)
	r.Method = http.MethodPost
	response, _ := ask(t, guard.Protect, r)
	if text := message(t, response); text != "vera has the role viewer, and this needs the role operator" {
		t.Errorf("the refusal is %q", text)
	}
}

func TestGuard_ManyRefusals_LogFew(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	refused := map[string]int{}
	guard := NewGuard(b.auth, nil)
	guard.OnRefusal(func(_ *http.Request, i Identity, _ string) { refused[i.Name]++ })
	try := func(token string) {
		r := request(t, token)
		r.Method = http.MethodPost
		if response, _ := ask(t, guard.Protect, r); response.StatusCode != http.StatusForbidden {
			t.Errorf("refused with %s", response.Status)
		}
	}
	for range 10 * maxFailures {
		try(viewerToken)
	}
	try(b.issuer.Token(groups("other")))
	b.clock.Advance(failureEvery)
	try(viewerToken)
	if refused["vera"] != maxFailures+1 || refused["jane"] != 1 {
		t.Errorf("refused: %v", refused)
	}
	if n := strings.Count(b.log.String(), "request refused"); n != maxFailures+2 {
		t.Errorf("logged: %d", n)
	}
}

func TestGuard_AccessControlOff_IsOperator(t *testing.T) {
	t.Parallel()
	a, err := New(Config{Mode: ModeNone}, Deps{})
	require.NoError(t, err)
	for _, token := range []string{"", "anything"} {
		r := request(t, token)
		r.Method = http.MethodPost
		response, who := ask(t, NewGuard(a, nil).Protect, r)
		if response.StatusCode != http.StatusNoContent || who.Name != Anonymous || who.Role != Operator || who.Authentication != None {
			t.Errorf("token %q: %s, %+v", token, response.Status, who)
		}
	}
}

func TestGuard_AccessControlOff_ChecksHost(t *testing.T) {
	t.Parallel()
	a, err := New(Config{}, Deps{})
	require.NoError(t, err)
	for host, want := range map[string]int{
		"localhost:8081": 204, "127.0.0.1:8081": 204, "[::1]:8081": 204, "localhost": 204, "[::1]": 204, "127.0.0.1": 204,
		"evil.example.org:8081": 403, "evil.example.org": 403, "10.0.0.1:8081": 403, "": 403, "localhost.evil.example.org": 403, "127.0.0.1.evil.example.org": 403,
	} {
		r := request(t, "")
		r.Host = host
		if response, _ := ask(t, NewGuard(a, nil).Protect, r); response.StatusCode != want {
			t.Errorf("%q: %s, want %d", host, response.Status, want)
		}
	}
}

func TestGuard_OtherCredentials_AreRejected(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for _, header := range []string{"Basic a2ViOmtlYg==", "Bearer", operatorToken, "Bearer ", "Digest x"} {
		r := request(t, "")
		r.Header.Set("Authorization", header)
		if response, _ := ask(t, NewGuard(b.auth, nil).Protect, r); response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%q: %s", header, response.Status)
		}
	}
	if strings.Contains(b.log.String(), "CANARY") {
		t.Error("the log has a token")
	}
}

func TestGuard_TokenExpires_EndsRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	limit := func(token string) time.Duration {
		var left time.Duration
		guard := NewGuard(b.auth, nil).Protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			deadline, _ := r.Context().Deadline()
			left = time.Until(deadline)
		}))
		guard.ServeHTTP(httptest.NewRecorder(), request(t, token))
		return left
	}
	claims := groups("admins")
	claims["exp"] = b.clock.Now().Add(time.Minute).Unix()
	if left := limit(b.issuer.Token(claims)); left <= 0 || left > time.Minute {
		t.Errorf("a token for a minute: %s", left)
	}
	for _, token := range []string{operatorToken, b.issuer.Token(groups("admins"))} {
		if left := limit(token); left <= time.Minute || left > maxRequest {
			t.Errorf("others: %s", left)
		}
	}
}

func TestRecheck_TokenRevoked_ReturnsError(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	listen := func(token string) (recheck func() error) {
		NewGuard(b.auth, nil).Protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			recheck = func() error { return Recheck(r.Context()) }
		})).ServeHTTP(httptest.NewRecorder(), request(t, token))
		return recheck
	}
	vera, otto, jane := listen(viewerToken), listen(operatorToken), listen(b.issuer.Token(groups("admins")))
	expect := func(when string, again func() error, status int) {
		t.Helper()
		e, refused := errors.AsType[*Error](again())
		if refused != (status != http.StatusOK) || refused && e.Status != status {
			t.Errorf("%s: %v, want %d", when, e, status)
		}
	}
	for _, again := range []func() error{vera, otto, jane} {
		expect("at first", again, http.StatusOK)
	}
	write(t, b.file, line(t, "otto", Viewer, operatorToken))
	b.issuer.Down(true)
	b.clock.Advance(2 * lookEvery)
	expect("an operator who is now a viewer", otto, http.StatusOK)
	expect("a token that was removed", vera, http.StatusUnauthorized)
	expect("while the issuer is away", jane, http.StatusOK)
	b.clock.Advance(24 * time.Hour)
	b.issuer.Down(false)
	expect("after its end", jane, http.StatusUnauthorized)
	if err := Recheck(t.Context()); err != nil {
		t.Errorf("without access control: %v", err)
	}
}
