// Package extclient is the HTTP client for external systems.
//
// Every call has a deadline and ends in one of four ways: an answer, a
// StatusError, an AnswerError or a CallError. Each of them says through
// Temporary whether the same call may work later. A circuit breaker per client
// keeps an outage of a system from holding up everything that talks to it, and
// an error never shows a query, a header or a body that went out or came in,
// apart from a short message that the system gave, with anything that looks
// like a secret removed.
package extclient
