package postgres

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/lib/pq"
)

// SQLSTATE codes and classes that this package distinguishes
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const (
	codeUniqueViolation      = "23505"
	codeSerializationFailure = "40001"
	codeDeadlockDetected     = "40P01"
	codeLockNotAvailable     = "55P03"
	classConnection          = "08"
	// classData is 22000 to 2203G: a number out of range, a NUL in a text, invalid JSON.
	classData = "22"
	// classResources is 53000 to 53400: the disk is full, or memory or connections are exhausted.
	classResources = "53"
	// classSystem is 58000 to 58030: an error of the disk or the operating system.
	classSystem = "58"
	// classOperator is 57P01 to 57P05: the server is stopping or starting, has crashed, or has ended the session.
	classOperator = "57P"
	// codeReadOnly is a write on a standby, or on a server that was made read-only.
	codeReadOnly = "25006"
)

// IsUniqueViolation reports whether err means that a row with the same key exists. An empty constraint matches every
// unique constraint and index; otherwise the violated one must have that name.
func IsUniqueViolation(err error, constraint string) bool {
	e, ok := errors.AsType[*pq.Error](err)
	return ok && string(e.Code) == codeUniqueViolation && (constraint == "" || e.Constraint == constraint)
}

// IsRetryable reports whether the same transaction may succeed if it runs again: after a serialization failure, a
// deadlock, or a lock that was not available. The transaction was rolled back.
func IsRetryable(err error) bool {
	switch code(err) {
	case codeSerializationFailure, codeDeadlockDetected, codeLockNotAvailable:
		return true
	}
	return false
}

// IsRefused reports whether err means that the server rejects a value; a retry cannot succeed.
func IsRefused(err error) bool { return strings.HasPrefix(code(err), classData) }

// IsConnection reports whether err is an error of the connection or the server: the server is unreachable, starting or stopping, read-only, has
// no free connection, rejects the session, or has no space on its disk or in its memory. Every other statement would fail, too. The
// result of a transaction in progress is then unknown.
func IsConnection(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := errors.AsType[*sessionError](err); ok {
		return true
	}
	return passes(err)
}

// sessionError is the error of a session that could not be opened: no statement was executed.
type sessionError struct{ cause error }

// Error returns the text of the cause.
func (e *sessionError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *sessionError) Unwrap() error { return e.cause }

// errNotPrimary means that a server does not accept writes, or no longer is the primary.
var errNotPrimary = errors.New("the server is not the primary")

// passes reports whether err is temporary.
func passes(err error) bool {
	if c := code(err); c != "" {
		return strings.HasPrefix(c, classConnection) || strings.HasPrefix(c, classOperator) || strings.HasPrefix(c, classResources) ||
			strings.HasPrefix(c, classSystem) || c == codeReadOnly
	}
	for _, target := range []error{
		errNotPrimary, driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	_, ok := errors.AsType[*net.OpError](err)
	return ok
}

func code(err error) string {
	if e, ok := errors.AsType[*pq.Error](err); ok {
		return string(e.Code)
	}
	return ""
}
