package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// closeTimeout is the time for sending waiting spans when the process ends.
const closeTimeout = 5 * time.Second

// ExporterFunc creates what sends spans to the collector. Package otlp has the one of KEB's services.
type ExporterFunc func(ctx context.Context) (sdk.SpanExporter, error)

// Config configures an Exporter in addition to the environment.
type Config struct {
	// Exporter is required for tracing. If it is nil, New logs a warning when the environment names a collector.
	Exporter ExporterFunc
	// Log receives a message when the collector rejects spans, and when it accepts them again. It may be nil.
	Log *slog.Logger
	// Together is for several services in one process: each keeps its own name and ignores OTEL_SERVICE_NAME.
	Together bool
}

// Exporter sends spans to the collector. A nil Exporter is valid, and its methods do nothing.
type Exporter struct {
	cfg   Config
	out   *outlet
	batch sdk.SpanProcessor
}

// New reads the environment. It returns nil if tracing is off, no collector is set, or there is no exporter. Spans wait in a queue with a limit. If it is full
// because the collector is slow or unavailable, spans are dropped. No caller waits for the collector. The error reports every invalid
// variable. The caller must call Close.
//
// New reads these variables: OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER (otlp or none), OTEL_EXPORTER_OTLP_* and
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
	if cfg.Exporter == nil {
		cfg.Log.Warn("tracing is off: a collector is set, but this program has no exporter; add otlp.New of libs/tracing/otlp to its main function")
		return nil, nil
	}
	collector, err := cfg.Exporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	out := newOutlet(collector, cfg.Log)
	return &Exporter{cfg: cfg, out: out, batch: sdk.NewBatchSpanProcessor(out)}, nil
}

// Check reports each invalid variable of the environment.
func Check() error {
	if _, err := checkEnvironment(); err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	return nil
}

// Provider creates the provider of one service with the name and version of its spans; an empty version is omitted. It returns nil if
// tracing is off.
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
	// The environment is already validated. New returns a resource even with an error.
	r, err := resource.New(context.Background(), options...)
	if err != nil {
		e.cfg.Log.Warn("resource of spans is incomplete", "err", err)
	}
	return NewProvider(e.batch, sdk.WithResource(r))
}

// NewProvider creates a provider whose spans can have chosen ids (Record), for tests with their own processor.
func NewProvider(p sdk.SpanProcessor, more ...sdk.TracerProviderOption) trace.TracerProvider {
	return sdk.NewTracerProvider(append(more, sdk.WithIDGenerator(ids{}), sdk.WithSpanProcessor(p))...)
}

// Close sends the waiting spans for at most five seconds, and returns when all goroutines have ended. Later spans are dropped.
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

// TracerOf returns the tracer of a part of the product; nil if the provider is nil.
func TracerOf(p trace.TracerProvider, part string) trace.Tracer {
	if p == nil {
		return nil
	}
	return p.Tracer("github.com/kyma-project/keb/" + part)
}
