// Package event defines the contract on the bus: the types of the CloudEvents that the services exchange, their payloads, and their
// streams, subjects, consumers and request subjects.
//
// Every payload is a Go struct here, a JSON Schema in api/events and an entry in api/asyncapi.yaml. A test compares the three. The suffix
// of a type is its version. Within a version, fields are only added, and readers ignore unknown fields.
package event
