package extclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// ErrOpen is the cause of a CallError while the circuit breaker of a system is open. It is temporary.
var ErrOpen = errors.New("the system keeps failing, calls to it are paused")

// StatusError is an answer with an unexpected status.
type StatusError struct {
	// System is the name of the system, for example "avs".
	System string
	Method string
	// Route is the path template, without values.
	Route  string
	Status int
	// Message is the system's message, shortened and without secrets. It is often empty.
	Message string
	// RetryAfter is the delay that the system requests; 0 if it requests none.
	RetryAfter time.Duration

	body []byte
	// graphQL marks an answer of a GraphQL endpoint, which reports its own errors with status 200.
	graphQL bool
}

// Error returns the call and the status.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s: %s: status %d", e.System, call(e.Method, e.Route), e.Status)
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Temporary reports whether the call may succeed later. It is true for 408, 429, all statuses from 500 on, and an unexpected 2xx, which
// probably comes from a proxy. It is true for every status of a GraphQL endpoint.
func (e *StatusError) Temporary() bool {
	return e.graphQL || e.Status < http.StatusMultipleChoices || e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests ||
		e.Status >= http.StatusInternalServerError
}

// ErrorComponent returns the system.
func (e *StatusError) ErrorComponent() string { return e.System }

// ErrorReason returns the reason for operators (docs/contracts/processes.md#components-and-reasons-of-errors).
func (e *StatusError) ErrorReason() string {
	return cmp.Or(GatewayReason(e.Status), "err_http_status_code")
}

// GatewayReason returns the reason of a status with which a gateway reports that it got no answer from the system (502, 504); "" for any
// other status. As without an answer, the system may still act on the request (docs/decisions/0084-late-effects.md).
func GatewayReason(status int) string {
	switch status {
	case http.StatusBadGateway:
		return reasonNetwork
	case http.StatusGatewayTimeout:
		return reasonNetworkTimeout
	}
	return ""
}

// The reasons of a call without an answer, in the words of libs/worker.
const (
	reasonNetwork        = "err_network"
	reasonNetworkTimeout = "err_network_timeout"
)

// Body returns the answer's body, for clients that decide by it. It must not be logged.
func (e *StatusError) Body() []byte { return e.body }

// CallError is a call without an answer, because of the network, a timeout, a missing token, or an open breaker. It is temporary, unless
// the request is invalid.
type CallError struct {
	System string
	Method string
	Route  string
	Err    error

	permanent bool
}

// Error returns the call and the cause.
func (e *CallError) Error() string {
	return fmt.Sprintf("%s: %s: %v", e.System, call(e.Method, e.Route), e.Err)
}

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Err }

// Temporary reports whether the call may succeed later.
func (e *CallError) Temporary() bool { return !e.permanent }

// ErrorComponent returns the system.
func (e *CallError) ErrorComponent() string { return e.System }

// ErrorReason returns the reason of a call that an open breaker prevented, or that was not answered or not completed; for other failures of
// the network it is empty, because their errors are in the chain.
func (e *CallError) ErrorReason() string {
	if errors.Is(e.Err, ErrOpen) {
		return "err_system_unavailable"
	}
	return UnansweredReason(e.Err)
}

// UnansweredReason returns the reason of an error of Unanswered that was a timeout, or an answer that ended early or was no HTTP. It returns
// "" for other errors: libs/worker finds the reason of an error of package net.
func UnansweredReason(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return reasonNetworkTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errNoHTTP):
		return reasonNetwork
	}
	return ""
}

// AnswerError is a successful answer that cannot be decoded. It is temporary, because such answers come from proxies; the next call
// checks whether the work was done.
type AnswerError struct {
	System string
	Method string
	Route  string
	Err    error
}

// Error returns the call and the reason.
func (e *AnswerError) Error() string {
	return fmt.Sprintf("%s: %s: unreadable answer: %v", e.System, call(e.Method, e.Route), e.Err)
}

// Unwrap returns the cause.
func (e *AnswerError) Unwrap() error { return e.Err }

// Temporary returns true.
func (e *AnswerError) Temporary() bool { return true }

// ErrorComponent returns the system.
func (e *AnswerError) ErrorComponent() string { return e.System }

// ErrorReason returns the reason for operators.
func (e *AnswerError) ErrorReason() string { return "err_unreadable_answer" }

// call returns the name of a call. The route may be empty, because the base URL is also valid.
func call(method, route string) string { return strings.TrimSpace(method + " " + route) }

// IsTemporary reports whether any error in err's chain is temporary. It is false for nil, and for errors without the method Temporary.
func IsTemporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// IsStatus reports whether err is a StatusError with one of the statuses.
func IsStatus(err error, statuses ...int) bool {
	var e *StatusError
	return errors.As(err, &e) && slices.Contains(statuses, e.Status)
}
