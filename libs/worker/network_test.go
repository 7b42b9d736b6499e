package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

// get makes the call that a step makes, and returns its error.
func get(t *testing.T, url string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err == nil {
		_ = answer.Body.Close()
		t.Fatal("the call succeeded")
	}
	return &urlError{err}
}

// urlError is an error between the step and the network, as clients wrap it.
type urlError struct{ error }

func (e *urlError) Unwrap() error { return e.error }

func TestReason_NetworkFailure_NamesWhatFailed(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(func() { close(release); silent.Close() })
	hangUp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}))
	t.Cleanup(hangUp.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	client := &http.Client{Timeout: 50 * time.Millisecond}
	_, slow := client.Get(silent.URL) //nolint:noctx,bodyclose // the timeout is what is tested
	_, lost := http.Get(hangUp.URL)   //nolint:noctx,bodyclose // there is no answer
	for name, test := range map[string]struct {
		err    error
		reason string
	}{
		"refused":         {get(t, gone.URL), worker.ReasonRefused},
		"silent":          {slow, worker.ReasonNetworkTimeout},
		"hangs up":        {lost, worker.ReasonNetwork},
		"no such host":    {fmt.Errorf("call: %w", &net.DNSError{Err: "no such host", Name: "greeter.invalid", IsNotFound: true}), worker.ReasonUnknownHost},
		"end of a file":   {io.EOF, worker.ReasonStep},
		"own time limit":  {context.DeadlineExceeded, worker.ReasonTimeout},
		"any other error": {errors.New("boom"), worker.ReasonStep},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for component, err := range map[string]error{"test": test.err, "greeter": &worker.Error{Component: "greeter", Message: "greet", Err: test.err}} {
				r := workertest.Run(t, step(func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
					return op, 0, err
				}), workertest.Operation{})
				if r.Outcome != event.OutcomeFailed || r.Error.Component != component || r.Error.Reason != test.reason {
					t.Errorf("%s, %+v: want component %s and reason %s", r.Outcome, r.Error, component, test.reason)
				}
			}
		})
	}
}
