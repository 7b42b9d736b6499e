package worker

import (
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// verdict is the error by which the helpers tell an outcome that a duration alone cannot say.
type verdict struct {
	outcome event.Outcome
	message string
	cause   error
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

// Retry takes the operation up again after a time because of cause, which the API and the facts then show. The stage
// is repeated from its first step, or this step alone if its process says so (retry.scope: step). A time of 0 means
// the time in the process file (retry.every). When the retry budget of the process file is spent, the step is not
// taken up again. A nil cause makes it a Wait without a message.
func Retry(op Operation, after time.Duration, cause error) (Operation, time.Duration, error) {
	return op, after, &verdict{outcome: event.OutcomeRetry, cause: cause}
}

// Wait takes the operation up again after a time like Retry, with nothing wrong: the step only waits for something,
// which message names. A time of 0 means the time in the process file: wait.every, or retry.every for a step without a wait. A
// step with a wait in its process file waits until wait.timeout is spent, and its retry budget counts errors only.
func Wait(op Operation, after time.Duration, message string) (Operation, time.Duration, error) {
	return op, after, &verdict{outcome: event.OutcomeRetry, message: message}
}

// RetryWithoutFail is Retry as long as less than budget has passed since the step was first tried
// (op.FirstTriedAt). After that the step counts as not completed: the operation goes on without it, records it, and a
// later operation may do the work. Steps that clean up use it with a budget of at most 5 minutes.
func RetryWithoutFail(op Operation, after, budget time.Duration, cause error) (Operation, time.Duration, error) {
	if op.now().Sub(op.FirstTriedAt) < budget {
		return Retry(op, after, cause)
	}
	if cause == nil {
		cause = errors.New("not done within " + budget.String())
	}
	return NotCompleted(op, cause)
}

// NotCompleted gives up on the work of the step because of cause, which must not be nil: the operation goes on without it,
// records it, and a later operation may do the work.
func NotCompleted(op Operation, cause error) (Operation, time.Duration, error) {
	return op, 0, &verdict{outcome: event.OutcomeNotCompleted, cause: cause}
}

// Fail fails the step. A nil e is an error too, one without a message.
func Fail(op Operation, e *Error) (Operation, time.Duration, error) {
	if e == nil {
		e = &Error{Message: "the step failed without saying why"}
	}
	return op, 0, &failure{e}
}

// Skip ends the step well with nothing done, and says why there was nothing to do.
func Skip(op Operation, message string) (Operation, time.Duration, error) {
	return op, 0, &verdict{outcome: event.OutcomeSkipped, message: message}
}
