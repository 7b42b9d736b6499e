package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Span describes a span of work that has ended.
type Span struct {
	// Parent is the parent span. If it is not sampled, Record does nothing, unless the sampler decides otherwise.
	Parent trace.SpanContext
	// ID is the id of the span; zero means a random one.
	ID trace.SpanID
	// Name must be one of a small set: ids belong in the attributes.
	Name       string
	Kind       trace.SpanKind
	Start, End time.Time
	Attributes []attribute.KeyValue
	Links      []trace.Link
	// Failure is the reason of a failure; empty means success. It must contain no secret.
	Failure string
}

// Record creates the span of work that has ended. With a nil tracer it does nothing.
func Record(ctx context.Context, t trace.Tracer, s Span) {
	if t == nil {
		return
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, s.Parent)
	if s.ID.IsValid() {
		ctx = context.WithValue(ctx, chosenKey{}, chosen{span: s.ID})
	}
	// The returned context would use the id again, so no other span may be started with it.
	_, span := t.Start(ctx, s.Name, trace.WithSpanKind(s.Kind), trace.WithTimestamp(s.Start), trace.WithAttributes(s.Attributes...),
		trace.WithLinks(s.Links...))
	if s.Failure != "" {
		span.SetStatus(codes.Error, s.Failure)
	}
	span.End(trace.WithTimestamp(s.End))
}

// TraceParent is the name of the W3C header for a trace, and of the extension of a CloudEvent (Distributed Tracing).
const TraceParent = "traceparent"

// Parent returns a span context as a W3C header traceparent; empty if it is invalid.
func Parent(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	const digits = "0123456789abcdef"
	text := make([]byte, 0, 55)
	hex := func(bytes ...byte) {
		for _, b := range bytes {
			text = append(text, digits[b>>4], digits[b&15])
		}
	}
	traceID, spanID := sc.TraceID(), sc.SpanID()
	text = append(text, "00-"...)
	hex(traceID[:]...)
	text = append(text, '-')
	hex(spanID[:]...)
	text = append(text, '-')
	hex(byte(sc.TraceFlags() & trace.FlagsSampled))
	return string(text)
}

// ParseParent parses the W3C header traceparent. For an invalid text the result is invalid.
func ParseParent(s string) trace.SpanContext {
	return trace.SpanContextFromContext(Continue(context.Background(), s))
}

// Continue returns ctx with the remote span of a W3C header traceparent, or ctx itself if the header is invalid.
func Continue(ctx context.Context, parent string) context.Context {
	if parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, carrier(parent))
}

// Extension returns the trace of ctx as extensions of a CloudEvent (Distributed Tracing extension). It is empty if there is no trace, and
// never nil.
func Extension(ctx context.Context) map[string]string {
	e := map[string]string{}
	if parent := Parent(trace.SpanContextFromContext(ctx)); parent != "" {
		e[TraceParent] = parent
	}
	return e
}

// carrier is a propagation carrier with only a traceparent.
type carrier string

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	if key == TraceParent {
		return string(c)
	}
	return ""
}

// Set implements propagation.TextMapCarrier. It does nothing, because the carrier is only read.
func (carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (carrier) Keys() []string { return []string{TraceParent} }
