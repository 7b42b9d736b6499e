// Package bus carries the events of libs/event over NATS JetStream.
//
// It publishes CloudEvents in batches and consumes them in batches, keeps the
// streams, consumers and the stage bucket of the contract in place, sends what
// nobody can read to dead letters, and asks and answers questions by
// request/reply. JetStream is a carrier and not the truth: when a server comes
// back with an empty store, the streams are made anew and work goes on.
package bus
