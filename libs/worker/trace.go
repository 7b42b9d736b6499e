package worker

import (
	"context"
	"log/slog"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/tracing"
)

// startSpan starts the span of an execution as a child of the step's span in the command. It is in the context of Run, so that
// calls of the step to external systems are its children. Without tracing it is nil.
func (p *pool) startSpan(t *taken) (context.Context, trace.Span) {
	ctx := bus.TraceContext(p.stepsCtx, t.delivery.Event)
	if p.w.tracer == nil {
		return ctx, nil
	}
	c := &t.command
	ctx, span := p.w.tracer.Start(ctx, "process "+t.delivery.Subject, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("messaging.system", "nats"),
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.operation.name", "process"),
		attribute.String("messaging.destination.name", t.delivery.Subject),
		attribute.String("messaging.consumer.group.name", p.w.spec.Name),
		attribute.String("messaging.message.id", t.dispatchID()),
		attribute.String("keb.operation.id", c.Operation.ID),
		attribute.String("keb.operation.type", string(c.Operation.Type)),
		attribute.String("keb.instance.id", c.Operation.InstanceID),
		attribute.String("keb.plan", c.Operation.Plan.Name),
		attribute.String("keb.stage", c.Stage),
		attribute.String("keb.step", c.Step),
		attribute.Int("keb.stage.attempt", c.StageAttempt),
		attribute.Int("keb.step.attempt", c.StepAttempt),
		attribute.Int("keb.dispatch", c.Dispatch),
		attribute.Int64("keb.deliveries", int64(t.delivery.NumDelivered())),
		attribute.String("keb.worker", p.w.cfg.Name),
	))
	return ctx, span
}

// endSpan ends the span of an execution with the result.
func endSpan(span trace.Span, r *Result) {
	if span == nil {
		return
	}
	outcome := string(r.Outcome)
	switch {
	case r.interrupted:
		outcome = "interrupted"
	case r.unwanted:
		outcome = "abandoned"
	}
	span.SetAttributes(attribute.String("keb.outcome", outcome))
	if r.RetryAfter > 0 {
		span.SetAttributes(attribute.Float64("keb.retry_after", r.RetryAfter.Seconds()))
	}
	if r.Error != nil {
		span.SetAttributes(attribute.String("error.type", r.Error.Reason), attribute.String("keb.component", r.Error.Component))
		span.SetStatus(codes.Error, r.Error.Message)
	}
	span.End()
}

// traceOfResult returns the trace context of a result: its execution, or without tracing the trace context of the command.
func traceOfResult(t *taken, span trace.Span) string {
	if span != nil {
		if parent := tracing.Parent(span.SpanContext()); parent != "" {
			return parent
		}
	}
	return bus.TraceOf(t.delivery.Event)
}

// ask creates a span of a question to another service, as a child of the execution.
func ask(ctx context.Context, subject string, question func(context.Context) error) error {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return question(ctx)
	}
	tracer := tracing.TracerOf(parent.TracerProvider(), "libs/worker")
	ctx, span := tracer.Start(ctx, "request "+subject, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("messaging.system", "nats"), attribute.String("messaging.destination.name", subject),
	))
	defer span.End()
	err := question(ctx)
	if err != nil {
		span.SetStatus(codes.Error, "no good answer")
	}
	return err
}

// answered creates a span of each answer to a question.
func (w *Worker) answered(q Question) func(context.Context, []byte) (any, error) {
	if w.tracer == nil {
		return q.Answer
	}
	return func(ctx context.Context, question []byte) (any, error) {
		ctx, span := w.tracer.Start(ctx, "answer "+q.Subject, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("messaging.system", "nats"), attribute.String("messaging.destination.name", q.Subject),
			attribute.String("keb.worker", w.cfg.Name),
		))
		defer span.End()
		answer, err := q.Answer(ctx, question)
		if err != nil {
			span.SetStatus(codes.Error, "refused")
		}
		return answer, err
	}
}

// logOf returns the logger of an execution. Most executions log nothing, so its attributes are formatted at the first line.
func (p *pool) logOf(t *taken, span trace.Span) *slog.Logger {
	parent := p.w.log.Handler()
	return slog.New(&lazyHandler{Handler: parent, make: sync.OnceValue(func() slog.Handler {
		c := &t.command
		attributes := []slog.Attr{
			slog.String("operation_id", c.Operation.ID), slog.String("instance_id", c.Operation.InstanceID),
			slog.String("stage", c.Stage), slog.String("step", c.Step), slog.Int("attempt", c.StepAttempt),
		}
		if span != nil && span.IsRecording() {
			attributes = append(attributes, slog.String("trace_id", span.SpanContext().TraceID().String()))
		}
		return parent.WithAttrs(attributes)
	})})
}

// lazyHandler is the handler that make returns. Its embedded handler only decides which levels are enabled.
type lazyHandler struct {
	slog.Handler
	make func() slog.Handler
}

func (h *lazyHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.make().Handle(ctx, r)
}

func (h *lazyHandler) WithAttrs(attributes []slog.Attr) slog.Handler {
	return h.make().WithAttrs(attributes)
}

func (h *lazyHandler) WithGroup(name string) slog.Handler { return h.make().WithGroup(name) }
