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

// SQLSTATE codes and classes that decisions hang on
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const (
	codeUniqueViolation      = "23505"
	codeSerializationFailure = "40001"
	codeDeadlockDetected     = "40P01"
	codeLockNotAvailable     = "55P03"
	classConnection          = "08"
	// classData is 22000 to 2203G: a number out of range, a NUL in a text, invalid JSON.
	classData = "22"
	// classResources is 53000 to 53400: the disk is full, memory or connections are used up.
	classResources = "53"
	// classSystem is 58000 to 58030: the disk or the operating system fails.
	classSystem = "58"
	// classOperator is 57P01 to 57P05: the server stops, has crashed, is starting, or has ended the session.
	classOperator = "57P"
)

// IsUniqueViolation reports whether err says that a row with the same key exists. An empty constraint matches every
// unique constraint and index; otherwise the name must be the one that was violated.
func IsUniqueViolation(err error, constraint string) bool {
	e, ok := errors.AsType[*pq.Error](err)
	return ok && string(e.Code) == codeUniqueViolation && (constraint == "" || e.Constraint == constraint)
}

// IsRetryable reports whether the same transaction may succeed when it is run again: a serialization failure, a
// deadlock, or a lock that was not available. Nothing of the transaction has been kept.
func IsRetryable(err error) bool {
	switch code(err) {
	case codeSerializationFailure, codeDeadlockDetected, codeLockNotAvailable:
		return true
	}
	return false
}

// IsRefused reports whether err says that the server refuses a value, and will do so each time.
func IsRefused(err error) bool { return strings.HasPrefix(code(err), classData) }

// IsConnection reports whether err says that the server could not be reached, went away, is starting or stopping, has no
// free connection, takes no session of ours, or has no room on its disk or in its memory: another statement would not have fared better. What
// a transaction in progress has done is then not known.
func IsConnection(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := errors.AsType[*sessionError](err); ok {
		return true
	}
	return passes(err)
}

// sessionError is why there is no session: no statement was tried.
type sessionError struct{ cause error }

// Error is the cause.
func (e *sessionError) Error() string { return e.cause.Error() }

// Unwrap is the cause.
func (e *sessionError) Unwrap() error { return e.cause }

// passes reports whether err is of a kind that goes away by itself.
func passes(err error) bool {
	if c := code(err); c != "" {
		return strings.HasPrefix(c, classConnection) || strings.HasPrefix(c, classOperator) || strings.HasPrefix(c, classResources) ||
			strings.HasPrefix(c, classSystem)
	}
	for _, target := range []error{
		driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
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
