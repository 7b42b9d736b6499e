package bus

import (
	"context"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/tracing"
)

// TraceParent is the name of the CloudEvents extension for a trace (Distributed Tracing extension).
const TraceParent = tracing.TraceParent

// traceparent returns the trace of ctx as a W3C header value, or "".
func traceparent(ctx context.Context) string {
	return tracing.Parent(trace.SpanContextFromContext(ctx))
}

// TraceOf returns the trace of an event as a W3C header value, or "" if it has none.
func TraceOf(e cloudevents.Event) string {
	c, ok := e.Context.(*cloudevents.EventContextV1)
	if !ok || c == nil {
		return ""
	}
	parent, _ := c.Extensions[TraceParent].(string)
	return parent
}

// TraceContext returns ctx with the trace of an event as the remote span, or ctx itself if the event has none.
func TraceContext(ctx context.Context, e cloudevents.Event) context.Context {
	return tracing.Continue(ctx, TraceOf(e))
}
