package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Span is a span of something that has ended.
type Span struct {
	// Parent is the span that it belongs to. A parent that is not sampled makes Record do nothing, unless the sampler thinks
	// otherwise.
	Parent trace.SpanContext
	// ID is a chosen id; zero means any.
	ID trace.SpanID
	// Name is of a small set: ids belong into the attributes.
	Name       string
	Kind       trace.SpanKind
	Start, End time.Time
	Attributes []attribute.KeyValue
	Links      []trace.Link
	// Failure is why it failed; empty when it did not. It holds no secret.
	Failure string
}

// Record makes a span of something that has ended. A nil tracer makes none.
func Record(ctx context.Context, t trace.Tracer, s Span) {
	if t == nil {
		return
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, s.Parent)
	if s.ID.IsValid() {
		ctx = context.WithValue(ctx, chosenKey{}, chosen{span: s.ID})
	}
	// The context that Start returns would choose the id again, so nothing may be started with it.
	_, span := t.Start(ctx, s.Name, trace.WithSpanKind(s.Kind), trace.WithTimestamp(s.Start), trace.WithAttributes(s.Attributes...),
		trace.WithLinks(s.Links...))
	if s.Failure != "" {
		span.SetStatus(codes.Error, s.Failure)
	}
	span.End(trace.WithTimestamp(s.End))
}

// TraceParent is the name of the W3C header that carries a trace, and of the extension of a CloudEvent that does (Distributed Tracing).
const TraceParent = "traceparent"

// Parent is a span context as the W3C header traceparent; empty when it is none.
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

// ParseParent reads the W3C header traceparent; what it returns is not valid when the text is not.
func ParseParent(s string) trace.SpanContext {
	return trace.SpanContextFromContext(Continue(context.Background(), s))
}

// Continue returns ctx with the remote span that a W3C header traceparent names; ctx itself when it names none.
func Continue(ctx context.Context, parent string) context.Context {
	if parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, carrier(parent))
}

// Extension is the trace of ctx as the extensions of a CloudEvent (Distributed Tracing extension); empty when there is none, and
// never nil.
func Extension(ctx context.Context) map[string]string {
	e := map[string]string{}
	if parent := Parent(trace.SpanContextFromContext(ctx)); parent != "" {
		e[TraceParent] = parent
	}
	return e
}

// carrier is a traceparent alone.
type carrier string

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	if key == TraceParent {
		return string(c)
	}
	return ""
}

// Set implements propagation.TextMapCarrier. Nothing is written to a carrier that is read.
func (carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (carrier) Keys() []string { return []string{TraceParent} }
