// Package outcome turns the error of a call to an external system into the return values of a step.
package outcome

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Reasons of docs/contracts/processes.md#components-and-reasons-of-errors that the steps report.
const (
	ReasonStatus  = "err_http_status_code"
	ReasonTimeout = worker.ReasonTimeout
	ReasonState   = "err_unexpected_state"
	// ReasonPaused is for a call that was not made, because the system keeps failing.
	ReasonPaused = "err_system_unavailable"
)

// Error names the component at fault and why. An error of a call names its system; component is for all others.
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

// Of is a retry after a time for an error that may pass, and a failure for any other.
func Of(op worker.Operation, component string, after time.Duration, err error) (worker.Operation, time.Duration, error) {
	if errors.Is(err, worker.ErrStageLost) {
		return op, 0, err
	}
	if extclient.IsTemporary(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Again(op, component, after, err)
	}
	return worker.Fail(op, Error(component, err))
}

// Again is a retry after a time whatever the error is, for steps that only their budget ends.
func Again(op worker.Operation, component string, after time.Duration, err error) (worker.Operation, time.Duration, error) {
	if errors.Is(err, worker.ErrStageLost) {
		return op, 0, err
	}
	return worker.Retry(op, after, Error(component, err))
}
