package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

// outageError is an error as the clients of systems return it.
type outageError struct{ error }

func (outageError) Temporary() bool        { return true }
func (outageError) ErrorComponent() string { return "avs" }
func (outageError) ErrorReason() string    { return "err_http_status_code" }

func TestNewStep_ResultsOfFunctions_KeepTheirOutcome(t *testing.T) {
	t.Parallel()
	outage := outageError{errors.New("status 503")}
	for _, test := range []struct {
		name              string
		run               func(worker.Operation) (worker.Operation, time.Duration, error)
		want              event.Outcome
		component, reason string
	}{
		{"fail with a temporary cause", func(op worker.Operation) (worker.Operation, time.Duration, error) {
			return worker.Fail(op, &worker.Error{Component: "c", Err: outage})
		}, event.OutcomeFailed, "c", "err_http_status_code"},
		{"retry of a permanent error", func(op worker.Operation) (worker.Operation, time.Duration, error) {
			return worker.Retry(op, time.Second, errors.New("refused"))
		}, event.OutcomeRetry, "own", "err_step_failed"},
		{"not completed", func(op worker.Operation) (worker.Operation, time.Duration, error) {
			return worker.NotCompleted(op, outage)
		}, event.OutcomeNotCompleted, "avs", "err_http_status_code"},
		{"wrapped error of the step", func(op worker.Operation) (worker.Operation, time.Duration, error) {
			return op, 0, fmt.Errorf("look up: %w", &worker.Error{Component: "c", Reason: "r", Message: "m"})
		}, event.OutcomeFailed, "c", "r"},
		{"broker that keeps nothing", func(op worker.Operation) (worker.Operation, time.Duration, error) {
			return op, time.Second, op.Keep(t.Context(), func() {})
		}, event.OutcomeRetry, "keb", "err_keb_internal"},
		{"no such credentials", func(op worker.Operation) (worker.Operation, time.Duration, error) {
			return op, time.Second, op.ClaimCredentials(t.Context(), "none", &struct{}{})
		}, event.OutcomeFailed, "keb", "err_keb_internal"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			step := worker.NewStep("calling", "own", func(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
				return test.run(op)
			}, worker.Description{})
			r := workertest.Run(t, step, workertest.Operation{})
			if r.Outcome != test.want || r.Error == nil || r.Error.Component != test.component || r.Error.Reason != test.reason {
				t.Errorf("%s, %+v", r.Outcome, r.Error)
			}
		})
	}
}
