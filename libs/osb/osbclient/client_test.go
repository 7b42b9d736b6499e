package osbclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
)

// script answers requests one after the other and records them.
type script struct {
	t       *testing.T
	answers []scripted
	asked   []string
	bodies  []string
	headers []http.Header
}

type scripted struct {
	status     int
	retryAfter string
	body       string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Errorf("read request: %v", err)
	}
	s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI())
	s.bodies = append(s.bodies, string(body))
	s.headers = append(s.headers, r.Header)
	if len(s.answers) == 0 {
		s.t.Error("asked more often than expected")
		return
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	if a.retryAfter != "" {
		w.Header().Set("Retry-After", a.retryAfter)
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

func setup(t *testing.T, cfg osbclient.Config, answers ...scripted) (*osbclient.Client, *script) {
	t.Helper()
	s := &script{t: t, answers: answers}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	cfg.BaseURL = server.URL + "/oauth/cf-eu10/"
	c, err := osbclient.New(cfg, server.Client())
	require.NoError(t, err)
	return c, s
}

func TestProvision_Request_IsSentAndAnswered(t *testing.T) {
	t.Parallel()
	identity := &osb.OriginatingIdentity{Platform: "cloudfoundry", Value: json.RawMessage(`{"user_id":"u"}`)}
	c, s := setup(t, osbclient.Config{User: "u", Password: "p", OriginatingIdentity: identity, UserAgent: "agent/1"},
		scripted{status: 202, body: `{"operation":"op","dashboard_url":"http://d"}`})
	got, err := c.Provision(t.Context(), "a/b c", osbclient.Provisioning{
		ServiceID: "s", PlanID: "p", Parameters: map[string]any{"name": "n"},
	})
	require.NoError(t, err)
	want := &osbclient.Answer{Async: true, InstanceAnswer: osb.InstanceAnswer{Operation: "op", DashboardURL: "http://d"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"PUT /oauth/cf-eu10/v2/service_instances/a%2Fb%20c?accepts_incomplete=true"}, s.asked); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{`{"service_id":"s","plan_id":"p","parameters":{"name":"n"}}`}, s.bodies); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{
		"Authorization": "Basic dTpw", osb.HeaderVersion: "2.17", "Content-Type": "application/json", "User-Agent": "agent/1",
		osb.HeaderOriginatingIdentity: osb.FormatOriginatingIdentity(*identity),
	} {
		if got := s.headers[0].Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestClient_BrokerErrors_AreTyped(t *testing.T) {
	t.Parallel()
	c, s := setup(t, osbclient.Config{Token: "secret"},
		scripted{status: 422, retryAfter: "3", body: `{"error":"ConcurrencyError","description":"busy"}`},
		scripted{status: 410, body: `{}`}, scripted{status: 404, body: `<html>`}, scripted{status: 200, body: `<html>`})
	_, err := c.Update(t.Context(), "i", osbclient.Change{ServiceID: "s"})
	e, ok := errors.AsType[*osb.Error](err)
	if !ok || e.Status != 422 || e.Code != osb.CodeConcurrencyError || e.Description != "busy" || e.RetryAfter != 3*time.Second {
		t.Errorf("update: %v", err)
	}
	if _, err := c.Deprovision(t.Context(), "i", "s", "p"); !osbclient.IsGone(err) {
		t.Errorf("deprovision: %v", err)
	}
	if _, err := c.GetInstance(t.Context(), "i"); !osbclient.IsNotFound(err) {
		t.Errorf("get: %v", err)
	}
	if _, err := c.Catalog(t.Context()); err == nil {
		t.Error("an answer that is no JSON was taken for a catalog")
	}
	if got := s.headers[0].Get("Authorization"); got != "Bearer secret" {
		t.Errorf("authorization: %q", got)
	}
}

func TestClient_Redirect_IsNotFollowed(t *testing.T) {
	t.Parallel()
	// Go's client would send the credentials to another port of the same host.
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect is followed") }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.RedirectHandler(other.URL+"/v2/catalog", http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	for _, client := range []*http.Client{nil, server.Client()} {
		c, err := osbclient.New(osbclient.Config{BaseURL: server.URL, User: "u", Password: "CANARY"}, client)
		require.NoError(t, err)
		if _, err := c.Catalog(t.Context()); err == nil || !strings.Contains(err.Error(), other.URL) || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("a redirect: %v", err)
		}
	}
}

func TestPoll_InProgress_Waits(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answers []scripted
		want    []osb.State
	}{
		"success": {
			[]scripted{{200, "1", `{"state":"in progress"}`}, {503, "", `{}`}, {200, "", `{"state":"succeeded"}`}},
			[]osb.State{osb.StateInProgress, osb.StateSucceeded},
		},
		"failure":            {[]scripted{{200, "", `{"state":"failed","description":"d"}`}}, []osb.State{osb.StateFailed}},
		"gone means deleted": {[]scripted{{410, "", `{}`}}, []osb.State{osb.StateSucceeded}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := setup(t, osbclient.Config{PollEvery: time.Millisecond, PollAtMost: 2 * time.Millisecond}, tt.answers...)
			var seen []osb.State
			last, err := c.Poll(t.Context(), "i", "op", func(l osb.LastOperation) { seen = append(seen, l.State) })
			require.NoError(t, err)
			if diff := cmp.Diff(tt.want, seen); diff != "" || last.State != tt.want[len(tt.want)-1] {
				t.Errorf("ended %s, saw %s", last.State, diff)
			}
		})
	}
}

func TestPoll_UnknownOperation_ReturnsError(t *testing.T) {
	t.Parallel()
	c, _ := setup(t, osbclient.Config{}, scripted{404, "", `{"description":"unknown"}`}, scripted{200, "", `{"state":"in progress"}`})
	if _, err := c.Poll(t.Context(), "i", "op", nil); !osbclient.IsNotFound(err) {
		t.Errorf("unknown operation: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Poll(ctx, "i", "op", func(osb.LastOperation) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestNew_InvalidAddress_IsRejected(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "127.0.0.1:8080", "ftp://host", "http://"} {
		if _, err := osbclient.New(osbclient.Config{BaseURL: address}, nil); err == nil {
			t.Errorf("%q was taken", address)
		}
	}
}
