package bus

import (
	"context"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// TraceParent is the name of the CloudEvents extension that carries a trace (Distributed Tracing extension).
const TraceParent = "traceparent"

// traceparent is the trace of ctx in the form of the W3C header, or "".
func traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c[TraceParent]
}

// TraceContext returns ctx with the trace that an event carries as the remote span; ctx itself when it carries none.
func TraceContext(ctx context.Context, e cloudevents.Event) context.Context {
	c, ok := e.Context.(*cloudevents.EventContextV1)
	if !ok || c == nil {
		return ctx
	}
	v, ok := c.Extensions[TraceParent].(string)
	if !ok {
		return ctx
	}
	return continueTrace(ctx, v)
}

// continueTrace returns ctx with the remote span that a W3C header names; ctx itself when it names none.
func continueTrace(ctx context.Context, parent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{TraceParent: parent})
}
