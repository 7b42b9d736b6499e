// Package otlp sends spans to a collector by OTLP over HTTP. It is a module of its own because the exporter requires a dozen others,
// which a worker without traces does not need.
package otlp

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// New is a tracing.ExporterFunc. The exporter reads OTEL_EXPORTER_OTLP_* and OTEL_EXPORTER_OTLP_TRACES_*, which package tracing validates.
func New(ctx context.Context) (sdk.SpanExporter, error) {
	e, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	return e, nil
}
