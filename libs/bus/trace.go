package bus

import (
	"context"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/tracing"
)

// TraceParent is the name of the CloudEvents extension that carries a trace (Distributed Tracing extension).
const TraceParent = tracing.TraceParent

// traceparent is the trace of ctx in the form of the W3C header, or "".
func traceparent(ctx context.Context) string {
	return tracing.Parent(trace.SpanContextFromContext(ctx))
}

// TraceOf is the trace that an event carries, in the form of the W3C header; empty when it carries none.
func TraceOf(e cloudevents.Event) string {
	c, ok := e.Context.(*cloudevents.EventContextV1)
	if !ok || c == nil {
		return ""
	}
	parent, _ := c.Extensions[TraceParent].(string)
	return parent
}

// TraceContext returns ctx with the trace that an event carries as the remote span; ctx itself when it carries none.
func TraceContext(ctx context.Context, e cloudevents.Event) context.Context {
	return tracing.Continue(ctx, TraceOf(e))
}
