package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/stagemem"
)

const (
	// flushTimeout limits the writes to the stage memory after Run, when the context of Run may have ended.
	flushTimeout = 5 * time.Second
	// memoryDelay is the delay before a stage is repeated whose memory did not answer. The time in the process file is meant for failures of
	// external systems, and may be minutes.
	memoryDelay = 5 * time.Second
)

// Execution is a command and the dependencies of its execution. Worker and workertest use it.
type Execution struct {
	Command event.StepExecute
	Worker  event.Worker
	// Memory is the stage memory of the command's stage attempt; nil means that the worker has none.
	Memory Memory
	// Claim requests credentials from the broker; nil means that there is no broker.
	Claim func(ctx context.Context, request event.CredentialsRequest) (json.RawMessage, error)
	// Keep stores a value in the broker, and Kept reads it; nil means that there is no broker.
	Keep func(ctx context.Context, request event.KeepRequest) error
	Kept func(ctx context.Context, request event.KeptRequest) (json.RawMessage, error)
	// Progress receives each report of Operation.Progress; nil drops them. It must not block.
	Progress func(event.ProgressNotice)
	// Extend requests more time from the orchestrator and returns the new time limit; nil means that there is no orchestrator.
	Extend func(ctx context.Context, request event.ExtendRequest) (time.Time, error)
	// Log is the step's logger; nil discards its logs.
	Log *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	// wanted reports, after Run has returned, whether the result still counts; nil means that it does.
	wanted func() bool
}

// Result is the outcome of an execution.
type Result struct {
	Outcome event.Outcome
	// RetryAfter is for event.OutcomeRetry; 0 means the time in the process file.
	RetryAfter time.Duration
	// Event is the event that the step waits for, with event.OutcomeRetry; nil for none.
	Event *event.AwaitedEvent
	// Error is set after an error, also for a retry.
	Error *event.Error
	event.Result

	// interrupted is true if the worker stopped before the step was done, so there is no result to publish.
	interrupted bool
	// unwanted is true if the orchestrator no longer waits for the result, so it is not published.
	unwanted bool
	panicked bool
}

// Payload returns the type and payload of the result's event.
func (r Result) Payload() (event.Type, any) {
	switch r.Outcome {
	case event.OutcomeSucceeded:
		return event.TypeStepSucceeded, event.StepSucceeded{Result: r.Result}
	case event.OutcomeRetry:
		return event.TypeStepRetry, event.StepRetry{Result: r.Result, RetryAfter: r.RetryAfter.Seconds(), Error: r.Error, Event: r.Event}
	case event.OutcomeSkipped:
		return event.TypeStepSkipped, event.StepSkipped{Result: r.Result}
	case event.OutcomeNotCompleted:
		return event.TypeStepSkipped, event.StepSkipped{Result: r.Result, NotCompleted: true, Error: r.Error}
	case event.OutcomeStageLost:
		return event.TypeStageLost, event.StageLost{Result: r.Result}
	}
	e := event.Error{Component: r.Worker.Name, Reason: ReasonStep, Message: "the step failed without an error message"}
	if r.Error != nil {
		e = *r.Error
	}
	return event.TypeStepFailed, event.StepFailed{Result: r.Result, Error: e}
}

// Execute runs a step once as a worker does, but without a bus: it ends ctx at the command's ExecuteBefore,
// turns a panic into a failure, writes the stage memory and validates the return values.
func Execute(ctx context.Context, step Step, x Execution) Result {
	if x.Log == nil {
		x.Log = slog.New(slog.DiscardHandler)
	}
	s := newSession(&x)
	c := &x.Command
	r := Result{Result: event.Result{
		OperationID: c.Operation.ID, Cursor: c.Cursor, Stage: c.Stage, Step: c.Step,
		Worker: x.Worker, StartedAt: s.now(),
	}}

	limited, cancel := newLimited(ctx, c.ExecuteBefore.Sub(r.StartedAt))
	defer cancel()
	s.limit, ctx = limited, limited
	after, err := s.run(ctx, step, &r)
	stopped := context.Cause(ctx)
	if x.wanted != nil && !x.wanted() {
		r.unwanted = true
		return r
	}

	var invalid error
	r.Details, r.Removed, invalid = s.close()
	switch {
	case r.panicked:
		r.Outcome, r.Error = event.OutcomeFailed, r.report(&Error{Reason: ReasonPanic, Err: err})
	case invalid != nil:
		r.Outcome, r.Error = event.OutcomeFailed, r.invalid(invalid)
	default:
		r.judge(after, err, stopped)
	}
	s.settle(ctx, &r)
	s.guard(&r)
	r.FinishedAt = s.now()
	return r
}

func (s *session) run(ctx context.Context, step Step, r *Result) (after time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.panicked = true
			err = fmt.Errorf("the step panicked: %v", p)
			s.x.Log.Error("step panicked", "err", s.censored(err.Error()), "stack", s.censored(string(debug.Stack())))
		}
	}()
	_, after, err = step.Run(ctx, s.operation(), s.x.Log)
	return after, err
}

func (s *session) operation() Operation {
	c := &s.x.Command
	o := &c.Operation
	return Operation{
		ID: o.ID, Type: o.Type, InstanceID: o.InstanceID, Plan: o.Plan, Context: o.Context, Runtime: o.Runtime,
		Credentials: o.Credentials, Temporary: o.Temporary, Purpose: o.Purpose, UserAgent: o.UserAgent, Update: o.Update, Upgrade: o.Upgrade,
		Stage: c.Stage, Step: c.Step,
		StageAttempt: c.StageAttempt, StepAttempt: c.StepAttempt,
		FirstTriedAt: c.FirstTriedAt, ExecuteBefore: c.ExecuteBefore, Event: c.Event, session: s,
	}
}

// judge sets the outcome from the return values of Run. stopped is the cause of the end of its context at that moment.
func (r *Result) judge(after time.Duration, err, stopped error) {
	if after < 0 {
		r.Outcome = event.OutcomeFailed
		r.Error = r.invalid(fmt.Errorf("the step's retry delay %s is negative", after))
		return
	}
	switch {
	case !errors.Is(stopped, context.Canceled) || !isStop(err):
	case errors.Is(stopped, ErrCancelled):
		r.Outcome = event.OutcomeRetry
		r.Error = &event.Error{Component: ComponentKEB, Reason: ReasonCancelled, Message: stopped.Error()}
		return
	default:
		r.interrupt(err)
		return
	}
	if v, ok := errors.AsType[*verdict](err); ok {
		r.Outcome, r.Message = v.outcome, v.message
		if v.outcome == event.OutcomeRetry {
			r.RetryAfter = after
		}
		if v.cause != nil {
			r.Error = r.report(v.cause)
			if r.Error.Reason == ReasonNetworkTimeout && errors.Is(stopped, ErrTimeLimit) {
				r.Error.Reason = ReasonTimeout // the call had no more time
			}
		}
		if v.event == "" {
			return
		}
		r.Event = &event.AwaitedEvent{Key: v.event}
		if err := r.Event.Validate(); err != nil {
			r.Outcome, r.RetryAfter, r.Event, r.Error = event.OutcomeFailed, 0, nil, r.invalid(fmt.Errorf("event.%w", err))
		}
		return
	}
	switch {
	case err == nil && after == 0:
		r.Outcome = event.OutcomeSucceeded
	case err == nil:
		r.Outcome, r.RetryAfter = event.OutcomeRetry, after
	case stopped != nil && isStop(err):
		r.Outcome, r.Error = event.OutcomeRetry, r.report(err)
		r.Error.Reason = ReasonTimeout
	default:
		r.Outcome, r.Error = event.OutcomeFailed, r.report(err)
	}
}

// interrupt handles a step that was interrupted because its worker stops. Its command goes to another worker, unless the step
// has saved details or removed objects: these must not be lost, so they are published with a retry.
func (r *Result) interrupt(err error) {
	r.Outcome = event.OutcomeRetry
	r.Error = &event.Error{Component: ComponentKEB, Reason: ReasonTimeout, Message: "the worker stops: " + err.Error()}
	r.interrupted = len(r.Details)+len(r.Removed) == 0
}

// isStop reports whether an error was caused by the end of the context. Not every
// client wraps the context's error, so every unclassified error counts after the context has ended.
func isStop(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	if _, decided := errors.AsType[*verdict](err); decided {
		return false
	}
	_, classified := errors.AsType[*Error](err)
	return !classified && err != nil
}

// settle writes the stage memory of a step that is done. A lost memory overrides every other outcome. An unreadable memory
// does not fail the step: the stage is retried, with the reason, until the bus and the keyrings are correct.
func (s *session) settle(ctx context.Context, r *Result) {
	if err := s.memoryError(); err != nil {
		switch {
		case r.Outcome == event.OutcomeFailed || r.Outcome == event.OutcomeNotCompleted:
			r.retryMemory(err)
		case r.Outcome == event.OutcomeRetry && r.RetryAfter == 0 && r.Error != nil && r.Error.Component == ComponentKEB && stagemem.IsAway(err):
			r.RetryAfter = memoryDelay
		}
	}
	if !s.isLost() && (r.Outcome == event.OutcomeSucceeded || r.Outcome == event.OutcomeSkipped) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		wrote, err := s.flush(ctx)
		r.StageMemory = wrote
		if err != nil {
			r.retryMemory(err)
		}
	}
	if s.isLost() {
		r.Outcome, r.RetryAfter, r.Error = event.OutcomeStageLost, 0, nil
		r.Message = "the stage memory is lost"
		r.interrupted = false
	}
}

// retryMemory makes the result a retry because of an error of the stage memory.
func (r *Result) retryMemory(err error) {
	r.Outcome, r.Message, r.RetryAfter, r.Error = event.OutcomeRetry, "", 0, r.report(own(fmt.Errorf("stage memory: %w", err)))
	if stagemem.IsAway(err) {
		r.RetryAfter = memoryDelay
	}
}
