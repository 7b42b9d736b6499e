package worker

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/kyma-project/keb/libs/event"
)

// Reasons that the SDK itself reports (docs/contracts/processes.md#components-and-reasons-of-errors).
const (
	// ReasonInternal is the reason of an error that is not an *Error, of a panic and of an invalid result.
	ReasonInternal = "err_keb_internal"
	// ReasonTimeout is the reason of a step that did not end before its command's ExecuteBefore.
	ReasonTimeout = "err_keb_timeout"
	// ReasonState is for steps: an external system is in a state that the step does not expect.
	ReasonState = "err_unexpected_state"
)

// ComponentKEB is the component of errors that are not of an external system.
const ComponentKEB = "keb"

var (
	// ErrNotRemembered tells that no step of this stage has remembered a value under the key.
	ErrNotRemembered = errors.New("not remembered")
	// ErrStageLost tells that the stage memory is gone, for example after a restart of NATS. A step may return it or
	// not: the SDK reports the loss by itself, and the stage starts again from its first step.
	ErrStageLost = errors.New("stage memory lost")
	// ErrNoStageMemory tells that the worker runs without a stage memory (KEB_STAGE_KEYS is not set).
	ErrNoStageMemory = errors.New("this worker has no stage memory: set KEB_STAGE_KEYS")
	// ErrKeptBroken reports that what is kept of the instance cannot be opened: its key is missing, or it was changed.
	ErrKeptBroken = errors.New("what is kept of the instance cannot be opened")
	// ErrNotKept reports that the worker has let nothing be kept of the instance.
	ErrNotKept = errors.New("nothing is kept of the instance")
	// ErrNoCredentials tells that the operation has no credentials of that name.
	ErrNoCredentials = errors.New("the operation has no such credentials")
	// ErrNoSession tells that an Operation was made by hand. Operations come from the SDK, in tests from workertest.
	ErrNoSession = errors.New("operation was not made by the worker SDK: in a test use workertest.Run")
)

// maxMessage is how long a message or an error message in a result may be, in bytes.
const maxMessage = 4 << 10

// Error is the error of a step in terms that an operator can sort by. It ends up in the API, the facts and the logs,
// so neither Message nor Err may hold a secret.
type Error struct {
	// Component is the system at fault, for example "avs"; empty means "keb".
	Component string
	// Reason is a short code, for example "err_http_status_code"; empty means that of Err, see ErrorOf.
	Reason string
	// Message is for people; empty means the text of Err.
	Message string
	// Err is the cause, and may be nil.
	Err error
}

// Error is the message and the cause.
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

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) reason() string {
	return cmp.Or(e.Reason, reasonOf(e.Err))
}

// report is what of err goes into a result. The text of the whole chain is kept: what a step wraps around an *Error
// says what it was doing.
func report(err error) *event.Error {
	r := &event.Error{Component: ComponentKEB, Reason: ReasonInternal, Message: cleanMessage(err.Error())}
	if e, ok := errors.AsType[*Error](err); ok {
		r.Reason = cleanMessage(e.reason())
		if e.Component != "" {
			r.Component = cleanMessage(e.Component)
		}
		return r
	}
	if errors.Is(err, context.DeadlineExceeded) {
		r.Reason = ReasonTimeout
	}
	return r
}

// cleanMessage makes s valid UTF-8 of at most maxMessage bytes, without the NUL that Postgres does not store.
func cleanMessage(s string) string {
	const more = "..."
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage - len(more)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + more
}
