package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

func greeterOf(t *testing.T, status int, body string) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		if _, err := w.Write([]byte(body)); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func run(t *testing.T, url string, op workertest.Operation) workertest.Result {
	t.Helper()
	op.Worker = workerName
	return workertest.Run(t, NewHelloWorldStep(&http.Client{Timeout: time.Minute}, url), op)
}

func TestHelloWorld_Answer_IsSavedAndPassedOn(t *testing.T) {
	t.Parallel()
	url := greeterOf(t, http.StatusOK, `{"data":"hello","token":"s3cret"}`)
	check := func(r workertest.Result) {
		t.Helper()
		if r.Outcome != event.OutcomeSucceeded {
			t.Fatalf("outcome %q, error %+v", r.Outcome, r.Error)
		}
		if diff := cmp.Diff(map[string]any{"helloWorlds": "hello"}, r.Details); diff != "" {
			t.Errorf("details (-want +got):\n%s", diff)
		}
		want := []worker.ComponentOverrides{{
			Component: "component-name", Entries: []worker.Override{{Key: "some.key", Value: "s3cret", Secret: true}},
		}}
		if diff := cmp.Diff(want, r.Overrides); diff != "" {
			t.Errorf("overrides (-want +got):\n%s", diff)
		}
	}
	first := run(t, url, workertest.Operation{})
	check(first)
	check(run(t, url, first.Then())) // running it again changes nothing
}

func TestHelloWorld_GreeterUnavailable_IsRetried(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	for name, url := range map[string]string{
		"not there": closed.URL, "broken": greeterOf(t, http.StatusBadGateway, ""),
	} {
		r := run(t, url, workertest.Operation{})
		if r.Outcome != event.OutcomeRetry || r.RetryAfter != time.Second || r.Error == nil {
			t.Errorf("%s: outcome %q after %s with error %+v", name, r.Outcome, r.RetryAfter, r.Error)
		}
	}
}

func TestHelloWorld_PermanentError_Fails(t *testing.T) {
	t.Parallel()
	for want, url := range map[string]string{
		"403":      greeterOf(t, http.StatusForbidden, ""),
		"expected": greeterOf(t, http.StatusOK, `{"data":1,"token":"s3cret"}`),
	} {
		r := run(t, url, workertest.Operation{})
		if r.Outcome != event.OutcomeFailed || !strings.Contains(r.Error.Message, want) || r.Error.Component != component {
			t.Errorf("outcome %q, error %+v: want a failure with %q", r.Outcome, r.Error, want)
		}
		if strings.Contains(r.Error.Message, "s3cret") {
			t.Errorf("the error contains the token: %s", r.Error.Message)
		}
	}
}

func TestSteps_InvalidAddress_IsRejected(t *testing.T) {
	for _, address := range []string{"greeter", "ftp://greeter", "http://"} {
		t.Setenv("HELLO_URL", address)
		if _, err := steps(t.Context(), worker.Env{}); err == nil || !strings.Contains(err.Error(), "HELLO_URL") {
			t.Errorf("HELLO_URL=%s: error %v", address, err)
		}
	}
}
