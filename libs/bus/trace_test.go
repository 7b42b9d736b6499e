package bus_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/bus"
)

func TestTraceContext_Event_CarriesTrace(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	span := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5}, TraceFlags: trace.FlagsSampled,
	})
	own := command(t, "own trace")
	own.Event.SetExtension(bus.TraceParent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	require.NoError(t, b.Publish(trace.ContextWithSpanContext(t.Context(), span), command(t, "a"), own))
	got := make(chan trace.SpanContext, 10)
	start(t, b, bus.ConsumeConfig{Consumer: spec()}, func(ctx context.Context, batch []*bus.Delivery) {
		for _, d := range batch {
			got <- trace.SpanContextFromContext(bus.TraceContext(ctx, d.Event))
			_ = d.Ack()
		}
	})
	if sc := within(t, got, "event"); sc.TraceID() != span.TraceID() || sc.SpanID() != span.SpanID() || !sc.IsRemote() {
		t.Errorf("trace is %v, want that of the publisher", sc)
	}
	if sc := within(t, got, "event"); sc.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("trace is %v, want the event's own", sc)
	}
}
