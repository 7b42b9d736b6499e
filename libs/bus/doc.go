// Package bus carries the events of libs/event over NATS JetStream.
//
// It publishes and consumes CloudEvents in batches, maintains the streams, consumers
// and the stage bucket of the contract, moves unreadable messages to dead letters, and
// sends and answers requests (request/reply). JetStream transports the events; the
// database is authoritative. If a server restarts with an empty store, the package
// creates the streams again and the work continues.
package bus
