package extclient_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

func TestErrors_OfSteps_RetryOrFail(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name              string
		err               error
		want              event.Outcome
		component, reason string
	}{
		{"outage", &extclient.StatusError{System: "avs", Status: 503}, event.OutcomeRetry, "avs", "err_http_status_code"},
		{"gateway without an answer", &extclient.StatusError{System: "avs", Status: 504}, event.OutcomeRetry, "avs", "err_network_timeout"},
		{"refusal", &extclient.StatusError{System: "avs", Status: 400}, event.OutcomeFailed, "avs", "err_http_status_code"},
		{"wrapped", fmt.Errorf("x: %w", &extclient.StatusError{System: "avs", Status: 503}), event.OutcomeRetry, "avs", "err_http_status_code"},
		{"paused", &extclient.CallError{System: "edp", Err: extclient.ErrOpen}, event.OutcomeRetry, "edp", "err_system_unavailable"},
		{"no answer", &extclient.CallError{System: "edp", Err: errors.New("connection refused")}, event.OutcomeRetry, "edp", "err_step_failed"},
		{"too late", &extclient.CallError{System: "edp", Err: context.DeadlineExceeded}, event.OutcomeRetry, "edp", "err_network_timeout"},
		{"unreadable", &extclient.AnswerError{System: "ias", Err: errors.New("x")}, event.OutcomeRetry, "ias", "err_unreadable_answer"},
		{"graph", &extclient.GraphQLError{System: "provisioner", Code: 400, Reason: "err_quota"}, event.OutcomeFailed, "provisioner", "err_quota"},
		{"own error", &worker.Error{Component: "c", Reason: "r", Message: "m"}, event.OutcomeFailed, "c", "r"},
		{"own error of an outage", &worker.Error{Component: "c", Reason: "r", Err: &extclient.StatusError{Status: 503}}, event.OutcomeRetry, "c", "r"},
		{"any other", errors.New("x"), event.OutcomeFailed, "own", "err_step_failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			step := worker.NewStep("calling", "own", func(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
				return op, time.Minute, test.err
			}, worker.Description{Summary: "Calls."})
			r := workertest.Run(t, step, workertest.Operation{})
			if test.want == event.OutcomeRetry && r.RetryAfter != time.Minute {
				t.Errorf("retry after %s, want 1m", r.RetryAfter)
			}
			if r.Outcome != test.want || r.Error == nil || r.Error.Component != test.component || r.Error.Reason != test.reason {
				t.Errorf("%s, %+v", r.Outcome, r.Error)
			}
		})
	}
}
