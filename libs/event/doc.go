// Package event is the contract on the bus: the types of the CloudEvents that
// the services exchange, their payloads, and the streams, subjects, consumers
// and request subjects they travel on.
//
// Every payload is a Go struct here, a JSON Schema in api/events and an entry in
// api/asyncapi.yaml; a test holds the three together. Types are versioned by
// their suffix; within a version a field is only ever added, and readers ignore
// what they do not know.
package event
