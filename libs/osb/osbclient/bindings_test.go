package osbclient_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
)

func TestClient_Bindings_AreDecoded(t *testing.T) {
	t.Parallel()
	const body = `{"credentials":{"kubeconfig":"canary"},"metadata":{"expires_at":"2026-01-02T03:04:05.0Z"}}`
	c, s := setup(t, osbclient.Config{},
		scripted{status: 201, body: body}, scripted{status: 200, body: body}, scripted{status: 202, body: `{"operation":"op"}`},
		scripted{status: 200, body: `{"credentials":{"kubeconfig":"canary"},"parameters":{"expiration_seconds":600}}`},
		scripted{status: 200, body: `{"state":"in progress"}`, retryAfter: "3"},
		scripted{status: 200, body: `{}`}, scripted{status: 410, body: `{}`})
	expires := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, want := range []struct{ async, existed bool }{{false, false}, {false, true}, {true, false}} {
		got, err := c.Bind(t.Context(), "i", "b/1", osbclient.Bind{ServiceID: "s", PlanID: "p"})
		if err != nil || got.Async != want.async || got.Existed != want.existed {
			t.Fatalf("answer %d: %v, %v", i, got, err)
		}
		if !got.Async && (string(got.Credentials) != `{"kubeconfig":"canary"}` || !got.Metadata.ExpiresAt.Equal(expires)) {
			t.Errorf("answer %d: %v", i, got)
		}
		if strings.Contains(fmt.Sprint(got, *got), "canary") {
			t.Error("a binding prints its credentials")
		}
	}
	got, err := c.GetBinding(t.Context(), "i", "b/1")
	if err != nil || string(got.Parameters) != `{"expiration_seconds":600}` {
		t.Errorf("binding: %v, %v", got, err)
	}
	last, err := c.LastBindingOperation(t.Context(), "i", "b/1", "op")
	if err != nil || last.State != osb.StateInProgress || last.RetryAfter != 3*time.Second {
		t.Errorf("last operation: %v, %v", last, err)
	}
	if a, err := c.Unbind(t.Context(), "i", "b/1", "s", "p"); err != nil || a.Async {
		t.Errorf("unbind: %v, %v", a, err)
	}
	if _, err := c.Unbind(t.Context(), "i", "b/1", "s", "p"); !osbclient.IsGone(err) {
		t.Errorf("unbind again: %v", err)
	}
	const path = "/oauth/cf-eu10/v2/service_instances/i/service_bindings/b%2F1"
	want := []string{
		"PUT " + path + "?accepts_incomplete=true", "PUT " + path + "?accepts_incomplete=true",
		"PUT " + path + "?accepts_incomplete=true", "GET " + path, "GET " + path + "/last_operation?operation=op",
		"DELETE " + path + "?accepts_incomplete=true&plan_id=p&service_id=s",
		"DELETE " + path + "?accepts_incomplete=true&plan_id=p&service_id=s",
	}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Error(diff)
	}
	if s.bodies[0] != `{"service_id":"s","plan_id":"p"}` {
		t.Errorf("the body is %s", s.bodies[0])
	}
}
