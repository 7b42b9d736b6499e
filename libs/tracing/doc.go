// Package tracing sends OpenTelemetry spans to a collector. It is off unless the
// standard environment variables name a collector, and the program has an exporter
// (package otlp). If it is off, there is no provider, no goroutine and no span.
//
// Nothing is global. New creates the exporter, and Provider creates the provider of
// one service, which the service passes to its parts. A part without a provider
// creates no spans. A part that runs inside a span gets the provider from the span
// (trace.SpanFromContext).
//
// An operation takes hours and any process may end meanwhile, so its spans do not
// stay open. They are created when the recorded work has ended (Record). Their ids
// are derived from the subject (SpanID), so that other spans can refer to them as
// parents earlier.
package tracing
