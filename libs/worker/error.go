package worker

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/kyma-project/keb/libs/event"
)

// Reasons that the SDK itself reports (docs/contracts/processes.md#components-and-reasons-of-errors).
const (
	// ReasonInternal is the reason of an error of KEB itself: of the broker and of the stage memory.
	ReasonInternal = "err_keb_internal"
	// ReasonStep is the reason of an error of a step without another reason.
	ReasonStep = "err_step_failed"
	// ReasonPanic is the reason of a step that panicked.
	ReasonPanic = "err_step_panicked"
	// ReasonResult is the reason of a step with an invalid result.
	ReasonResult = "err_step_result"
	// ReasonNetworkTimeout, ReasonRefused, ReasonUnknownHost and ReasonNetwork are the reasons of a call that the network failed: no answer in
	// time, a refused connection, a name that cannot be resolved, and any other failure, such as a lost connection.
	ReasonNetworkTimeout = "err_network_timeout"
	ReasonRefused        = "err_connection_refused"
	ReasonUnknownHost    = "err_unknown_host"
	ReasonNetwork        = "err_network"
	// ReasonTimeout is the reason of a step that did not end before its command's ExecuteBefore.
	ReasonTimeout = "err_keb_timeout"
	// ReasonCancelled is the reason of a step whose command was cancelled before it ended.
	ReasonCancelled = "err_keb_cancelled"
	// ReasonQuarantined is the reason of a step that was not executed, because its commands have ended their process too often.
	ReasonQuarantined = "err_keb_quarantined"
	// ReasonState is for steps: an external system is in a state that the step does not expect.
	ReasonState = "err_unexpected_state"
)

// ComponentKEB is the component of errors of KEB itself: of the broker and of the stage memory, and of commands that were cancelled.
const ComponentKEB = "keb"

var (
	// ErrNotRemembered means that no step of this stage has remembered a value under the key.
	ErrNotRemembered = errors.New("not remembered")
	// ErrStageLost means that the stage memory is lost, for example after a restart of NATS. A step need not return it:
	// the SDK reports the loss itself, and the stage restarts from its first step.
	ErrStageLost = errors.New("stage memory lost")
	// ErrNoStageMemory means that the worker has no stage memory (KEB_STAGE_KEYS is not set).
	ErrNoStageMemory = errors.New("this worker has no stage memory: set KEB_STAGE_KEYS")
	// ErrKeptBroken means that the kept value of the instance cannot be decrypted: its key is missing, or it was changed.
	ErrKeptBroken = errors.New("the kept value of the instance cannot be opened")
	// ErrNotKept means that the worker has kept no value of the instance.
	ErrNotKept = errors.New("no value of the instance is kept")
	// ErrNoCredentials means that the operation has no credentials with that name.
	ErrNoCredentials = errors.New("the operation has no such credentials")
	// ErrNoSession means that an Operation was not created by the SDK. In tests, workertest creates operations.
	ErrNoSession = errors.New("operation was not created by the worker SDK: use workertest.Run in tests")
)

// Causes of the end of the context of Run, see context.Cause. They wrap the error of the context, because clients return the cause instead.
var (
	// ErrCancelled means that the operation is to be cancelled, or no longer needs the command. The text of the cause contains the reason.
	ErrCancelled error = &cause{"the command was cancelled", context.Canceled}
	// ErrTimeLimit means that the command's ExecuteBefore has passed.
	ErrTimeLimit error = &cause{"the time limit of the step has passed", context.DeadlineExceeded}
	// ErrStopping means that the worker stops.
	ErrStopping error = &cause{"the worker stops", context.Canceled}
)

// cause is the cause of the end of a context.
type cause struct {
	text string
	err  error
}

func (c *cause) Error() string { return c.text }

func (c *cause) Unwrap() error { return c.err }

// Cancelled lets libs/extclient complete calls that change something when the command is cancelled.
func (c *cause) Cancelled() bool { return errors.Is(c, ErrCancelled) }

// Timeout makes the errors of clients report a timeout, as they do for context.DeadlineExceeded.
func (c *cause) Timeout() bool { return errors.Is(c.err, context.DeadlineExceeded) }

// maxMessage is the maximum length of a message or an error message in a result, in bytes.
const maxMessage = 4 << 10

// Error is the classified error of a step. It appears in the API, the facts and the logs,
// so neither Message nor Err may contain a secret.
type Error struct {
	// Component is the system at fault, for example "avs"; empty means that of Err, see ErrorOf, or else the worker.
	Component string
	// Reason is a short code, for example "err_http_status_code"; empty means that of Err, see ErrorOf.
	Reason string
	// Message is the text for users; empty means the text of Err.
	Message string
	// Err is the cause; it may be nil.
	Err error
}

// Error returns the message and the cause.
func (e *Error) Error() string {
	switch {
	case e.Err == nil && e.Message == "":
		return e.reason()
	case e.Err == nil:
		return e.Message
	case e.Message == "":
		return e.Err.Error()
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) reason() string {
	reason := cmp.Or(e.Reason, reasonOf(e.Err))
	if reason == ReasonStep && e.Component == ComponentKEB {
		return ReasonInternal
	}
	return reason
}

// report converts err for a result; the worker is the component of an error without another one. It keeps the text of the whole chain,
// because the text that a step wraps around an *Error describes the failed operation.
func (r *Result) report(err error) *event.Error {
	e := ErrorOf(r.Worker.Name, err)
	return &event.Error{Component: cmp.Or(e.Component, r.Worker.Name), Reason: e.Reason, Message: err.Error()}
}

// invalid returns the error of an invalid result.
func (r *Result) invalid(err error) *event.Error {
	return &event.Error{Component: r.Worker.Name, Reason: ReasonResult, Message: "invalid result: " + err.Error()}
}

// networkReason returns the reason of a call that the network failed, and "" for any other error.
func networkReason(err error) string {
	name, isName := errors.AsType[*net.DNSError](err)
	_, isConnection := errors.AsType[*net.OpError](err)
	_, isCall := errors.AsType[*url.Error](err)
	var slow interface{ Timeout() bool }
	switch {
	case isName && !name.IsTimeout:
		return ReasonUnknownHost
	case errors.Is(err, syscall.ECONNREFUSED):
		return ReasonRefused
	case (isName || isConnection || isCall) && errors.As(err, &slow) && slow.Timeout():
		return ReasonNetworkTimeout
	case isConnection, isCall && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return ReasonNetwork
	}
	return ""
}

// cut returns s as valid UTF-8 of at most limit bytes, without NUL.
func cut(s string, limit int) string {
	const more = "..."
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) <= limit {
		return s
	}
	end := limit - len(more)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + more
}
