package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

func TestExecute_ReturnValues_SetOutcome(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	avs := &worker.Error{Component: "avs", Reason: "err_http_status_code", Message: "create evaluation", Err: boom}
	failed := func(message string) *event.Error {
		return &event.Error{Component: "test", Reason: "err_step_failed", Message: message}
	}
	invalid := func(message string) *event.Error {
		return &event.Error{Component: "test", Reason: "err_step_result", Message: "invalid result: " + message}
	}

	for name, c := range map[string]struct {
		firstTried time.Duration
		run        func(op operation) (operation, time.Duration, error)
		want       workertest.Result
	}{
		"done": {
			run:  func(op operation) (operation, time.Duration, error) { return op, 0, nil },
			want: workertest.Result{Outcome: event.OutcomeSucceeded},
		},
		"a duration is a retry": {
			run:  func(op operation) (operation, time.Duration, error) { return op, 3 * time.Second, nil },
			want: workertest.Result{Outcome: event.OutcomeRetry, RetryAfter: 3 * time.Second},
		},
		"an error is a failure": {
			run:  func(op operation) (operation, time.Duration, error) { return op, 0, boom },
			want: workertest.Result{Outcome: event.OutcomeFailed, Error: failed("boom")},
		},
		"an error is a failure whatever the duration": {
			run:  func(op operation) (operation, time.Duration, error) { return op, time.Second, boom },
			want: workertest.Result{Outcome: event.OutcomeFailed, Error: failed("boom")},
		},
		"a wrapped Error keeps component, reason and the text around it": {
			run: func(op operation) (operation, time.Duration, error) {
				return op, 0, fmt.Errorf("register: %w", avs)
			},
			want: workertest.Result{Outcome: event.OutcomeFailed, Error: &event.Error{
				Component: "avs", Reason: "err_http_status_code", Message: "register: create evaluation: boom",
			}},
		},
		"Fail": {
			run: func(op operation) (operation, time.Duration, error) { return worker.Fail(op, avs) },
			want: workertest.Result{Outcome: event.OutcomeFailed, Error: &event.Error{
				Component: "avs", Reason: "err_http_status_code", Message: "create evaluation: boom",
			}},
		},
		"Fail without an error": {
			run: func(op operation) (operation, time.Duration, error) { return worker.Fail(op, nil) },
			want: workertest.Result{
				Outcome: event.OutcomeFailed, Error: failed("the step failed without an error message"),
			},
		},
		"Retry shows its cause": {
			run: func(op operation) (operation, time.Duration, error) { return worker.Retry(op, time.Minute, avs) },
			want: workertest.Result{Outcome: event.OutcomeRetry, RetryAfter: time.Minute, Error: &event.Error{
				Component: "avs", Reason: "err_http_status_code", Message: "create evaluation: boom",
			}},
		},
		"Retry without a time and a cause": {
			run:  func(op operation) (operation, time.Duration, error) { return worker.Retry(op, 0, nil) },
			want: workertest.Result{Outcome: event.OutcomeRetry},
		},
		"Wait": {
			run: func(op operation) (operation, time.Duration, error) {
				return worker.Wait(op, time.Second, "cluster is being made")
			},
			want: workertest.Result{
				Outcome: event.OutcomeRetry, RetryAfter: time.Second, Message: "cluster is being made",
			},
		},
		"WaitForEvent": {
			run: func(op operation) (operation, time.Duration, error) {
				return worker.WaitForEvent(op, "approval."+op.ID, time.Minute, "waiting for the approval")
			},
			want: workertest.Result{
				Outcome: event.OutcomeRetry, RetryAfter: time.Minute, Message: "waiting for the approval",
				EventKey: "approval.0a1c6f2e-6c0e-4a9e-9c58-7d1f0f3a2b10",
			},
		},
		"WaitForEvent with an invalid key": {
			run: func(op operation) (operation, time.Duration, error) {
				return worker.WaitForEvent(op, "a b", time.Minute, "")
			},
			want: workertest.Result{Outcome: event.OutcomeFailed, Error: invalid(
				`event.key: is "a b": want letters, digits, hyphens and underscores, with dots between them`)},
		},
		"RetryWithoutFail within its budget": {
			firstTried: 4 * time.Minute,
			run: func(op operation) (operation, time.Duration, error) {
				return worker.RetryWithoutFail(op, time.Second, 5*time.Minute, boom)
			},
			want: workertest.Result{Outcome: event.OutcomeRetry, RetryAfter: time.Second, Error: failed("boom")},
		},
		"RetryWithoutFail after its budget": {
			firstTried: 5 * time.Minute,
			run: func(op operation) (operation, time.Duration, error) {
				return worker.RetryWithoutFail(op, time.Second, 5*time.Minute, boom)
			},
			want: workertest.Result{Outcome: event.OutcomeNotCompleted, Error: failed("boom")},
		},
		"RetryWithoutFail after its budget without a cause": {
			firstTried: 5 * time.Minute,
			run: func(op operation) (operation, time.Duration, error) {
				return worker.RetryWithoutFail(op, time.Second, 5*time.Minute, nil)
			},
			want: workertest.Result{Outcome: event.OutcomeNotCompleted, Error: failed("not done within 5m0s")},
		},
		"Skip": {
			run: func(op operation) (operation, time.Duration, error) { return worker.Skip(op, "no evaluation") },
			want: workertest.Result{
				Outcome: event.OutcomeSkipped, Message: "no evaluation",
			},
		},
		"a negative duration is invalid": {
			run: func(op operation) (operation, time.Duration, error) { return op, -time.Second, nil },
			want: workertest.Result{Outcome: event.OutcomeFailed, Error: invalid(
				"the step's retry delay -1s is negative")},
		},
		"a negative duration is invalid from a helper too": {
			run: func(op operation) (operation, time.Duration, error) { return worker.Wait(op, -time.Second, "") },
			want: workertest.Result{Outcome: event.OutcomeFailed, Error: invalid(
				"the step's retry delay -1s is negative")},
		},
		"a panic is a failure": {
			run:  func(operation) (operation, time.Duration, error) { panic("out of cheese") },
			want: workertest.Result{Outcome: event.OutcomeFailed, Error: &event.Error{Component: "test", Reason: "err_step_panicked", Message: "the step panicked: out of cheese"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := workertest.Run(t, step(func(_ context.Context, op operation) (operation, time.Duration, error) {
				return c.run(op)
			}), workertest.Operation{FirstTried: c.firstTried})
			diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(workertest.Result{}), cmpopts.EquateEmpty())
			if diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExecute_Deadline_EndsContext(t *testing.T) {
	t.Parallel()

	hangs := func(after func(op operation, err error) (operation, time.Duration, error)) workertest.Result {
		return workertest.Run(t, step(func(ctx context.Context, op operation) (operation, time.Duration, error) {
			<-ctx.Done()
			return after(op, ctx.Err())
		}), workertest.Operation{Limit: 10 * time.Millisecond})
	}
	t.Run("its error is a retry", func(t *testing.T) {
		r := hangs(func(op operation, err error) (operation, time.Duration, error) {
			return op, 0, fmt.Errorf("get: %w", err)
		})
		if r.Outcome != event.OutcomeRetry || r.Error == nil || r.Error.Reason != worker.ReasonTimeout {
			t.Errorf("outcome %q with error %+v: want a retry for %s", r.Outcome, r.Error, worker.ReasonTimeout)
		}
	})
	t.Run("so is an error that hides it", func(t *testing.T) {
		r := hangs(func(op operation, _ error) (operation, time.Duration, error) {
			return op, 0, errors.New("connection closed")
		})
		if r.Outcome != event.OutcomeRetry {
			t.Errorf("outcome %q: want a retry", r.Outcome)
		}
	})
	t.Run("what the step knows for itself stays a failure", func(t *testing.T) {
		r := hangs(func(op operation, _ error) (operation, time.Duration, error) {
			return worker.Fail(op, &worker.Error{Component: "avs", Reason: "err_http_status_code", Message: "403"})
		})
		if r.Outcome != event.OutcomeFailed || r.Error.Component != "avs" {
			t.Errorf("outcome %q with error %+v: want the failure of avs", r.Outcome, r.Error)
		}
	})
	t.Run("a step that is done after all is done", func(t *testing.T) {
		r := hangs(func(op operation, _ error) (operation, time.Duration, error) { return op, 0, nil })
		if r.Outcome != event.OutcomeSucceeded {
			t.Errorf("outcome %q: want succeeded", r.Outcome)
		}
	})
}

func TestMessage_AnyBytes_IsShortValidUTF8(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"long":        strings.Repeat("ä", 4000),
		"invalid":     "bad \xff byte",
		"NUL":         "bad \x00 byte",
		"just enough": strings.Repeat("no ", 4<<10)[:4<<10], // words, because a long run is masked
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := workertest.Run(t, step(func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
				return op, 0, errors.New(text)
			}), workertest.Operation{})
			got := r.Error.Message
			if len(got) > 4<<10 || !utf8.ValidString(got) || strings.ContainsRune(got, 0) || got == "" {
				t.Errorf("message of %d bytes, valid UTF-8 %v: want at most 4096 valid bytes", len(got), utf8.ValidString(got))
			}
			if name == "just enough" && got != text {
				t.Error("a message of exactly 4096 bytes was changed")
			}
		})
	}
}
