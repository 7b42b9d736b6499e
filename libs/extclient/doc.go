// Package extclient is the HTTP client for external systems.
//
// Every call has a deadline and returns an answer, a StatusError, an AnswerError
// or a CallError. The method Temporary of each error reports whether the same call
// may succeed later. Each client has a circuit breaker, so that an outage of a system
// does not block its callers. An error contains no query, header or body of the
// request or the answer, except a short message of the system without anything that
// looks like a secret.
package extclient
