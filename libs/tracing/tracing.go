package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// closeTimeout is how long spans that wait may take to get out when the process ends.
const closeTimeout = 5 * time.Second

// Config says how an Exporter behaves, besides what the environment says.
type Config struct {
	// Log is told when the collector does not take spans, and when it does again; nil drops that.
	Log *slog.Logger
	// Together is for several services in one process: each keeps its own name, whatever OTEL_SERVICE_NAME says.
	Together bool
}

// Exporter brings spans to the collector. A nil one is off: all its methods may be called, and do nothing.
type Exporter struct {
	cfg   Config
	out   *outlet
	batch sdk.SpanProcessor
}

// New reads the environment, and returns nil when it names no collector or switches tracing off. Spans wait in a bounded
// queue; when it is full, because the collector is slow or away, they are dropped. Nothing waits for a collector. The error
// names each variable that cannot be used. The caller calls Close.
//
// These are read: OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER (otlp or none), OTEL_EXPORTER_OTLP_* and
// OTEL_EXPORTER_OTLP_TRACES_* (ENDPOINT, HEADERS, TIMEOUT, COMPRESSION, PROTOCOL, CERTIFICATE, CLIENT_CERTIFICATE,
// CLIENT_KEY), OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_* and
// OTEL_SPAN_*.
func New(ctx context.Context, cfg Config) (*Exporter, error) {
	on, err := checkEnvironment()
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	if !on {
		return nil, nil
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	collector, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	out := newOutlet(collector, cfg.Log)
	return &Exporter{cfg: cfg, out: out, batch: sdk.NewBatchSpanProcessor(out)}, nil
}

// Check reports each variable of the environment that New would refuse.
func Check() error {
	if _, err := checkEnvironment(); err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	return nil
}

// Provider makes the provider of one service, by the name and version that its spans show; an empty version is not
// shown. It is nil when tracing is off, and then costs nothing.
func (e *Exporter) Provider(service, version string) trace.TracerProvider {
	if e == nil {
		return nil
	}
	own := []attribute.KeyValue{attribute.String("service.namespace", "keb"), attribute.String("service.name", service)}
	if version != "" {
		own = append(own, attribute.String("service.version", version))
	}
	options := []resource.Option{resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(own...), resource.WithFromEnv()}
	if e.cfg.Together {
		options = append(options, resource.WithAttributes(own[1]))
	}
	// What is in the environment was checked; a resource comes also with an error.
	r, err := resource.New(context.Background(), options...)
	if err != nil {
		e.cfg.Log.Warn("resource of spans is not complete", "err", err)
	}
	return NewProvider(e.batch, sdk.WithResource(r))
}

// NewProvider makes a provider whose spans can have chosen ids (Record), for tests that have a processor of their own.
func NewProvider(p sdk.SpanProcessor, more ...sdk.TracerProviderOption) trace.TracerProvider {
	return sdk.NewTracerProvider(append(more, sdk.WithIDGenerator(ids{}), sdk.WithSpanProcessor(p))...)
}

// Close sends what waits, for five seconds at most, and returns when nothing runs any more. Spans that end later are dropped.
func (e *Exporter) Close() {
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := e.batch.Shutdown(ctx); err != nil {
		e.cfg.Log.Warn("spans were lost at the end of the process", "err", err)
	}
	e.out.stop()
}

// TracerOf is the tracer of a part of the product; nil when the provider is.
func TracerOf(p trace.TracerProvider, part string) trace.Tracer {
	if p == nil {
		return nil
	}
	return p.Tracer("github.com/kyma-project/keb/" + part)
}
