package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"
)

// StepFunc is the method Run of a Step.
type StepFunc func(ctx context.Context, op Operation, log *slog.Logger) (Operation, time.Duration, error)

// NewStep returns a Step with a description; component is the system of errors that have no own one, and empty means the worker. The step
// differs from other steps in the errors of run:
//
//   - (op, d, err) with a temporary error is a retry after d. An error is temporary if its chain contains the end of a context, or an error
//     whose method Temporary() bool returns true, such as those of the clients of libs/extclient, of the broker and of the stage memory.
//   - Any other error, and any error given to Fail, fails the step.
//   - The component and the reason of an error, also of one given to Retry, are those of ErrorOf.
func NewStep(name, component string, run StepFunc, d Description) Step {
	return &step{name, component, run, d}
}

type step struct {
	name, component string
	run             StepFunc
	description     Description
}

// Name implements Step.
func (s *step) Name() string { return s.name }

// Describe implements Described.
func (s *step) Describe() Description { return s.description }

// Run implements Step.
func (s *step) Run(ctx context.Context, op Operation, log *slog.Logger) (Operation, time.Duration, error) {
	op, after, err := s.run(ctx, op, log)
	if err == nil {
		return op, after, nil
	}
	if v, ok := errors.AsType[*verdict](err); ok {
		if v.cause != nil {
			err = &verdict{outcome: v.outcome, message: v.message, cause: ErrorOf(s.component, v.cause)}
		}
		return op, after, err
	}
	cause := ErrorOf(s.component, err)
	if _, failed := errors.AsType[*failure](err); failed || !isTemporary(ctx, err) {
		return op, 0, cause
	}
	return Retry(op, after, cause)
}

// isTemporary reports whether the step may succeed later. ctx is that of the execution: after its end, an error without a component says
// nothing about the step.
func isTemporary(ctx context.Context, err error) bool {
	var t interface{ Temporary() bool }
	if errors.As(err, &t) && t.Temporary() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	_, classified := errors.AsType[*Error](err)
	return ctx.Err() != nil && !classified
}

// ErrorOf returns err with a component and a reason: those of an *Error in its chain, otherwise those of its methods
// ErrorComponent() string and ErrorReason() string, otherwise the given component and a reason of this package, which for a failure of the
// network says what failed. The component of an *Error without one stays empty, which means the worker.
func ErrorOf(component string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{Component: cmp.Or(e.Component, componentOf(e.Err)), Reason: e.reason(), Err: err}
	}
	return &Error{Component: cmp.Or(componentOf(err), component), Reason: reasonOf(err), Err: err}
}

// componentOf returns what the method ErrorComponent() string of err's chain returns, or "".
func componentOf(err error) string {
	var named interface{ ErrorComponent() string }
	if errors.As(err, &named) {
		return named.ErrorComponent()
	}
	return ""
}

func reasonOf(err error) string {
	var named interface{ ErrorReason() string }
	if errors.As(err, &named) && named.ErrorReason() != "" {
		return named.ErrorReason()
	}
	if reason := networkReason(err); reason != "" && !errors.Is(err, ErrTimeLimit) {
		return reason
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return ReasonTimeout
	}
	return ReasonStep
}

// failure is an error that fails the step although it may be temporary.
type failure struct{ err *Error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// ownError is an error of the broker or of the stage memory.
type ownError struct {
	error

	temporary bool
}

// own marks an error of the broker or of the stage memory. It is temporary, unless it is one of those that a step decides by.
func own(err error) error {
	if err == nil {
		return nil
	}
	decisive := []error{ErrNotRemembered, ErrStageLost, ErrNoCredentials, ErrNotKept, ErrKeptBroken}
	return ownError{err, !slices.ContainsFunc(decisive, func(d error) bool { return errors.Is(err, d) })}
}

func (e ownError) Unwrap() error          { return e.error }
func (e ownError) Temporary() bool        { return e.temporary }
func (e ownError) ErrorComponent() string { return ComponentKEB }

func (e ownError) ErrorReason() string {
	if errors.Is(e.error, context.DeadlineExceeded) {
		return ReasonTimeout
	}
	return ReasonInternal
}

// Calls returns calls to one system.
func Calls(system string, operations ...string) []Call {
	calls := make([]Call, len(operations))
	for i, operation := range operations {
		calls[i] = Call{System: system, Operation: operation}
	}
	return calls
}
