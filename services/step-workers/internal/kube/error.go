package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/keb/libs/extclient"
)

// Error is a failed call. It contains the code and the reason of the answer, but not its text, in which a server or proxy may repeat
// the request.
type Error struct {
	System   string
	Verb     string
	Resource string
	Name     string
	// Code is the HTTP status; 0 means no answer, or none that can be read.
	Code   int
	Reason metav1.StatusReason
	// Err is the cause if there is no answer, or none that can be read.
	Err error
}

// Error returns the call and its result.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s %s", e.System, e.Verb, e.Resource)
	if e.Name != "" {
		text += " " + e.Name
	}
	if e.Err != nil {
		return fmt.Sprintf("%s: %v", text, e.Err)
	}
	return fmt.Sprintf("%s: %s (status %d)", text, e.Reason, e.Code)
}

// Unwrap returns the cause if there is no answer, or none that can be read.
func (e *Error) Unwrap() error { return e.Err }

// Temporary reports whether the call may succeed later. It is true without an answer, and for a conflict, 408, 410 (the next page of
// a list has expired), 429 and all statuses from 500 on.
func (e *Error) Temporary() bool {
	switch e.Code {
	case 0, http.StatusConflict, http.StatusGone, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	}
	return e.Code >= http.StatusInternalServerError
}

// ErrorReason returns the reason for operators (docs/contracts/processes.md#components-and-reasons-of-errors). Without an answer it is that
// of an unanswered call, because the server may still act on the request (docs/decisions/0084-late-effects.md).
func (e *Error) ErrorReason() string {
	switch {
	case e.Code != 0:
		return cmp.Or(extclient.GatewayReason(e.Code), string(e.Reason), "err_k8s_unexpected_object_error")
	case errors.Is(e.Err, context.DeadlineExceeded):
		return "err_keb_timeout"
	}
	if reason := extclient.UnansweredReason(e.Err); reason != "" {
		return reason
	}
	if _, ok := errors.AsType[net.Error](e.Err); ok {
		return "" // libs/worker finds it
	}
	return "err_k8s_unexpected_server_error"
}

// IsNotFound reports whether the object, or its kind, does not exist.
func IsNotFound(err error) bool { return hasCode(err, http.StatusNotFound) }

// IsConflict reports whether another client has changed or created the object in the meantime.
func IsConflict(err error) bool { return hasCode(err, http.StatusConflict) }

func hasCode(err error, code int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}

func (c *Client) wrap(verb, resource, name string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{System: c.system, Verb: verb, Resource: resource, Name: name}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		e.Code, e.Reason = int(status.Status().Code), metav1.StatusReason(extclient.Word(string(status.Status().Reason)))
		return e
	}
	e.Err = errors.New("no readable answer")
	_, isCall := errors.AsType[*url.Error](err)
	_, isRead := errors.AsType[readError](err)
	if long, ok := errors.AsType[tooLongError](err); ok {
		e.Err = long
	} else if isCall || isRead || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		e.Err = extclient.Unanswered(err)
	}
	return e
}
