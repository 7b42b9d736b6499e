// Package outcome converts the error of a call to an external system into the return values of a step.
package outcome

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Reasons that the steps report (docs/contracts/processes.md#components-and-reasons-of-errors).
const (
	ReasonStatus  = "err_http_status_code"
	ReasonTimeout = worker.ReasonTimeout
	ReasonState   = "err_unexpected_state"
	// ReasonPaused is the reason of a call that was not made because the system keeps failing.
	ReasonPaused = "err_system_unavailable"
)

// Error adds the component and the reason to err. For the error of a call, the component is its system.
func Error(component string, err error) *worker.Error {
	if e, ok := errors.AsType[*worker.Error](err); ok {
		return e
	}
	return &worker.Error{Component: cmp.Or(system(err), component), Reason: reason(err), Err: err}
}

func system(err error) string {
	if e, ok := errors.AsType[*extclient.StatusError](err); ok {
		return e.System
	}
	if e, ok := errors.AsType[*extclient.CallError](err); ok {
		return e.System
	}
	if e, ok := errors.AsType[*extclient.AnswerError](err); ok {
		return e.System
	}
	if e, ok := errors.AsType[*extclient.GraphQLError](err); ok {
		return e.System
	}
	return ""
}

func reason(err error) string {
	var own interface{ ErrorReason() string }
	if errors.As(err, &own) {
		return own.ErrorReason()
	}
	if e, ok := errors.AsType[*extclient.GraphQLError](err); ok && e.Reason != "" {
		return e.Reason
	}
	if _, ok := errors.AsType[*extclient.StatusError](err); ok {
		return ReasonStatus
	}
	if errors.Is(err, extclient.ErrOpen) {
		return ReasonPaused
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return ReasonTimeout
	}
	return worker.ReasonInternal
}

// Of returns a retry after a delay for a temporary error, and a failure for any other error.
func Of(op worker.Operation, component string, after time.Duration, err error) (worker.Operation, time.Duration, error) {
	if errors.Is(err, worker.ErrStageLost) {
		return op, 0, err
	}
	if extclient.IsTemporary(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Again(op, component, after, err)
	}
	return worker.Fail(op, Error(component, err))
}

// Again returns a retry after a delay for any error. It is for steps that repeat until their budget ends.
func Again(op worker.Operation, component string, after time.Duration, err error) (worker.Operation, time.Duration, error) {
	if errors.Is(err, worker.ErrStageLost) {
		return op, 0, err
	}
	return worker.Retry(op, after, Error(component, err))
}
