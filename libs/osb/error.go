package osb

import (
	"fmt"
	"net/http"
	"time"
)

// The error codes that the specification names.
const (
	CodeAsyncRequired           = "AsyncRequired"
	CodeConcurrencyError        = "ConcurrencyError"
	CodeRequiresApp             = "RequiresApp"
	CodeMaintenanceInfoConflict = "MaintenanceInfoConflict"
)

// Error is an error response. Description is sent to the platform and often shown to its user, so it must contain neither secrets nor
// internal names. Err is for the log.
type Error struct {
	// Status is the HTTP status, 400 to 599.
	Status int
	// Code is one of the Code constants, or empty.
	Code string
	// Description is for people. It must not be empty.
	Description string
	// InstanceUsable and UpdateRepeatable are members of the body unless they are nil.
	InstanceUsable   *bool
	UpdateRepeatable *bool
	// RetryAfter is the Retry-After header in seconds, rounded up; zero omits it.
	RetryAfter time.Duration
	// Body replaces the whole body unless it is nil.
	Body any
	// Err is the cause, for the log only. It is optional.
	Err error

	allow string
}

// Error returns the status, code and description, and the cause if there is one.
func (e *Error) Error() string {
	s := fmt.Sprintf("osb: %d", e.Status)
	if e.Code != "" {
		s += " " + e.Code
	}
	s += ": " + e.Description
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// SetHeader sets the headers of the error response, except the content type.
func (e *Error) SetHeader(h http.Header) {
	if e.RetryAfter > 0 {
		h.Set("Retry-After", seconds(e.RetryAfter))
	}
}

// BadRequest is 400: the request is invalid. The arguments are those of fmt.Sprintf.
func BadRequest(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Description: fmt.Sprintf(format, args...)}
}

// NotFound is 404: the object of the request does not exist.
func NotFound(format string, args ...any) *Error {
	return &Error{Status: http.StatusNotFound, Description: fmt.Sprintf(format, args...)}
}

// Conflict is 409: a different object with this id exists.
func Conflict(format string, args ...any) *Error {
	return &Error{Status: http.StatusConflict, Description: fmt.Sprintf(format, args...)}
}

// Gone is 410 with an empty JSON object: the object of a deletion, or of a poll after a deletion, does not exist any more.
func Gone() *Error {
	return &Error{Status: http.StatusGone, Description: "it does not exist any more", Body: struct{}{}}
}

// Unprocessable is 422 without a code: the request is valid but rejected, for example because of a quota.
func Unprocessable(format string, args ...any) *Error {
	return &Error{Status: http.StatusUnprocessableEntity, Description: fmt.Sprintf(format, args...)}
}

// AsyncRequired is 422: the platform must send accepts_incomplete=true.
func AsyncRequired() *Error {
	return &Error{
		Status: http.StatusUnprocessableEntity, Code: CodeAsyncRequired,
		Description: "this operation is asynchronous: send the query parameter accepts_incomplete=true",
	}
}

// ConcurrencyError is 422: another operation on the instance is in progress.
func ConcurrencyError() *Error {
	return &Error{
		Status: http.StatusUnprocessableEntity, Code: CodeConcurrencyError,
		Description: "another operation on this service instance is in progress: try again when it has ended",
	}
}

// MaintenanceInfoConflict is 422: the maintenance_info of the request differs from that of the catalog.
func MaintenanceInfoConflict(format string, args ...any) *Error {
	return &Error{
		Status: http.StatusUnprocessableEntity, Code: CodeMaintenanceInfoConflict, Description: fmt.Sprintf(format, args...),
	}
}

// PlanNotUpdateable is 422 with update_repeatable false: instances of the plan cannot change to another plan.
func PlanNotUpdateable() *Error {
	no, yes := false, true
	return &Error{
		Status: http.StatusUnprocessableEntity, Description: "the plan of this service instance cannot be changed",
		InstanceUsable: &yes, UpdateRepeatable: &no,
	}
}

// Unavailable is 503: a dependency of the broker does not answer. The cause is logged, not sent.
func Unavailable(cause error) *Error {
	return &Error{
		Status: http.StatusServiceUnavailable, RetryAfter: 5 * time.Second, Err: cause,
		Description: "the service broker cannot reach a system that it needs: try again later",
	}
}
