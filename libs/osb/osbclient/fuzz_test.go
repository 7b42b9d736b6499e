package osbclient_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
)

type answering func(*http.Request) *http.Response

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r), nil }

// For any answer, the client returns either a value or an error.
func FuzzAnswers(f *testing.F) {
	for i, seed := range []string{
		`{"operation":"o-1","dashboard_url":"https://x"}`, `{}`, ``, `null`, `{"services":[{"id":1}]}`, `{"state":"in progress"}`, `{"error":"X","description":"d"}`,
		`{"error":1}`, `<html>`, `{"instance_usable":"x"}`, `[`,
	} {
		f.Add(uint16(201*(i%3)), "10", seed)
	}
	f.Fuzz(func(t *testing.T, status uint16, retryAfter, body string) {
		code := 200 + int(status)%400
		client, err := osbclient.New(osbclient.Config{BaseURL: "http://broker.example.com", User: "u", Password: "CANARY-9"}, &http.Client{
			Transport: answering(func(r *http.Request) *http.Response {
				return &http.Response{
					StatusCode: code, Header: http.Header{"Retry-After": {retryAfter}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
				}
			}),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		})
		require.NoError(t, err)
		catalog, err := client.Catalog(t.Context())
		hold(t, catalog, err, code)
		made, err := client.Provision(t.Context(), "i-1", osbclient.Provisioning{})
		hold(t, made, err, code)
		last, err := client.LastOperation(t.Context(), "i-1", "o-1")
		hold(t, last, err, code)
		instance, err := client.GetInstance(t.Context(), "i-1")
		hold(t, instance, err, code)
	})
}

func hold[T any](t *testing.T, value *T, err error, code int) {
	t.Helper()
	if (value == nil) == (err == nil) {
		t.Fatalf("status %d: value %v, error %v", code, value, err)
	}
	if refused, ok := errors.AsType[*osb.Error](err); code >= 400 && (!ok || refused.Status != code || refused.RetryAfter < 0 || refused.RetryAfter > 24*time.Hour) {
		t.Fatalf("status %d: %#v", code, err)
	}
	if err != nil && strings.Contains(err.Error(), "CANARY") {
		t.Fatalf("the error is %q", err)
	}
}
