// Package tracing sends OpenTelemetry spans to a collector, by OTLP over HTTP. It
// is off unless the standard environment names a collector, and then there is
// nothing: no provider, no goroutine, no span.
//
// Nothing is global. New makes the way to the collector, Provider a provider of
// one service, which goes to the parts of the service; a part that gets none
// makes no spans. A part that runs inside a span finds the provider in the span
// (trace.SpanFromContext), and needs none of its own.
//
// An operation takes hours and any process may end meanwhile, so no span of it
// stays open. Its spans are made when what they show has ended (Record), with ids
// that follow from what they are about (SpanID), so that others could name them as
// parents long before.
package tracing
