package worker

import (
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// verdict is an error of the helpers for outcomes that a duration cannot express.
type verdict struct {
	outcome event.Outcome
	message string
	cause   error
	// event is the key of the event that the step waits for; empty for none.
	event string
}

func (v *verdict) Error() string {
	text := v.message
	if v.cause != nil {
		text = v.cause.Error()
	}
	if text == "" {
		return string(v.outcome)
	}
	return string(v.outcome) + ": " + text
}

func (v *verdict) Unwrap() error { return v.cause }

// Retry retries after a time because of cause, which the API and the facts show. The stage
// is repeated from its first step, or only this step if its process sets retry.scope: step. A time of 0 means
// the time in the process file (retry.every). After the retry budget of the process file, the step is not
// retried. With a nil cause it is a Wait without a message.
func Retry(op Operation, after time.Duration, cause error) (Operation, time.Duration, error) {
	return op, after, &verdict{outcome: event.OutcomeRetry, cause: cause}
}

// Wait retries after a time like Retry, but without an error: the step waits for something,
// which message describes. A time of 0 means the time in the process file: wait.every, or retry.every for a step without a wait. A
// step with a wait in its process file waits until wait.timeout has passed, and its retry budget counts only errors.
func Wait(op Operation, after time.Duration, message string) (Operation, time.Duration, error) {
	return op, after, &verdict{outcome: event.OutcomeRetry, message: message}
}

// WaitForEvent waits like Wait until the event with the key comes, and for fallback at most. Then the step runs again, with the event in
// op.Event, or without it after fallback: it should then check whether the external system is done, in case the system did not send the
// event. An event that came before the step waits for it is kept for seven days. Events with the same key come one at a time, in their order.
//
// The key consists of letters, digits, hyphens and underscores, and dots between them, 200 bytes at most. It must be unique to the operation:
// it should contain op.ID, or an ID that the external system has returned. The external system sends the event to
// POST /events/{key} of the operator API, or as a CloudEvent on keb.signal.<key>.
func WaitForEvent(op Operation, key string, fallback time.Duration, message string) (Operation, time.Duration, error) {
	return op, fallback, &verdict{outcome: event.OutcomeRetry, message: message, event: key}
}

// RetryWithoutFail is Retry until budget has passed since the first try of the step
// (op.FirstTriedAt). After that the step is not completed: the operation continues without it, records it, and a
// later operation may do the work. Clean-up steps use it with a budget of at most 5 minutes.
func RetryWithoutFail(op Operation, after, budget time.Duration, cause error) (Operation, time.Duration, error) {
	if op.now().Sub(op.FirstTriedAt) < budget {
		return Retry(op, after, cause)
	}
	if cause == nil {
		cause = errors.New("not done within " + budget.String())
	}
	return NotCompleted(op, cause)
}

// NotCompleted abandons the work of the step because of cause, which must not be nil: the operation continues without it,
// records it, and a later operation may do the work.
func NotCompleted(op Operation, cause error) (Operation, time.Duration, error) {
	return op, 0, &verdict{outcome: event.OutcomeNotCompleted, cause: cause}
}

// Fail fails the step. A nil e is an error without a reason.
func Fail(op Operation, e *Error) (Operation, time.Duration, error) {
	if e == nil {
		e = &Error{Message: "the step failed without an error message"}
	}
	return op, 0, &failure{e}
}

// Skip ends the step successfully without work, with the reason.
func Skip(op Operation, message string) (Operation, time.Duration, error) {
	return op, 0, &verdict{outcome: event.OutcomeSkipped, message: message}
}
