package broker

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/tracing"
)

// traceRoute sets the name and the attributes of a request's span. It omits the caller and the parameters.
func traceRoute(ctx context.Context, o osb.Observation) {
	more := make([]attribute.KeyValue, 0, 4)
	if o.InstanceID != "" {
		more = append(more, attribute.String("keb.instance.id", o.InstanceID))
	}
	if o.BindingID != "" {
		more = append(more, attribute.String("keb.binding.id", o.BindingID))
	}
	if o.Call.Region != "" {
		more = append(more, attribute.String("keb.platform_region", o.Call.Region))
	}
	if o.Code != "" {
		more = append(more, attribute.String("error.type", o.Code))
	}
	tracing.SetRoute(ctx, o.Method, o.Route, more...)
}
