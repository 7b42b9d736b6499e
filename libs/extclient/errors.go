package extclient

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// ErrOpen is the cause of a CallError while the circuit breaker of a system is open. It is temporary.
var ErrOpen = errors.New("the system keeps failing, calls to it are paused")

// StatusError is an answer with a status that the caller did not ask for.
type StatusError struct {
	// System is the client's system, for example "avs".
	System string
	Method string
	// Route is the path template, without values.
	Route  string
	Status int
	// Message is what the system said, shortened and without secrets; often empty.
	Message string
	// RetryAfter is how long the system wants to be left alone; 0 when it does not say.
	RetryAfter time.Duration

	body []byte
}

// Error names the call and the status.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s: %s: status %d", e.System, call(e.Method, e.Route), e.Status)
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Temporary reports whether the call may work later: 408, 429 and everything from 500 on, and a 2xx that the system does
// not use for this call, as it comes from something in between.
func (e *StatusError) Temporary() bool {
	return e.Status < http.StatusMultipleChoices || e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests ||
		e.Status >= http.StatusInternalServerError
}

// Body is the beginning of the answer's body, for a client that decides by it. It must not be logged.
func (e *StatusError) Body() []byte { return e.body }

// CallError is a call that got no answer: the network failed, the deadline passed, no token could be had, or the
// breaker is open. It is temporary, unless the request itself could not be built.
type CallError struct {
	System string
	Method string
	Route  string
	Err    error

	permanent bool
}

// Error names the call and the cause.
func (e *CallError) Error() string {
	return fmt.Sprintf("%s: %s: %v", e.System, call(e.Method, e.Route), e.Err)
}

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Err }

// Temporary reports whether the call may work later.
func (e *CallError) Temporary() bool { return !e.permanent }

// AnswerError is an answer with a good status that cannot be read. It is temporary: such answers come from something
// in between, and the next call looks whether the work was done.
type AnswerError struct {
	System string
	Method string
	Route  string
	Err    error
}

// Error names the call and what is wrong with its answer.
func (e *AnswerError) Error() string {
	return fmt.Sprintf("%s: %s: unreadable answer: %v", e.System, call(e.Method, e.Route), e.Err)
}

// Unwrap returns the cause.
func (e *AnswerError) Unwrap() error { return e.Err }

// Temporary is true.
func (e *AnswerError) Temporary() bool { return true }

// call names a call; a route may be empty, as the base URL is one too.
func call(method, route string) string { return strings.TrimSpace(method + " " + route) }

// IsTemporary reports whether any error in err's chain says that the call may work later. It is false for nil and
// for errors that say nothing about it.
func IsTemporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// IsStatus reports whether err is a StatusError with one of the statuses.
func IsStatus(err error, statuses ...int) bool {
	var e *StatusError
	return errors.As(err, &e) && slices.Contains(statuses, e.Status)
}
