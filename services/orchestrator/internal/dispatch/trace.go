package dispatch

import (
	"context"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// tracer creates the spans of operations, stages and steps. An operation outlives processes, so its spans are not kept open: the
// transition that ends a step, stage or operation creates the span, with the start time in the row. Span ids are derived from the row, so
// that any orchestrator can name a step as the parent of its executions before the step has ended (docs/decisions/0021-traces.md). A nil
// *tracer creates no spans.
type tracer struct{ t trace.Tracer }

func newTracer(t trace.Tracer) *tracer {
	if t == nil {
		return nil
	}
	return &tracer{t: t}
}

// parentOf returns the span of the request of an operation; it is not valid if the operation is not traced.
func parentOf(row *store.Row) trace.SpanContext {
	parent := tracing.ParseParent(row.TraceParent)
	if !parent.IsSampled() {
		return trace.SpanContext{}
	}
	return parent
}

// The ids include the start of the operation, because an operation that an operator retries has several runs. The time is cut to
// microseconds, as in the database.
func operationSpan(row *store.Row) trace.SpanID {
	return tracing.SpanID("operation", row.Operation.ID, row.StartedAt.UnixMicro())
}

func stageSpan(row *store.Row, stage int) trace.SpanID {
	return tracing.SpanID("stage", row.Operation.ID, row.StartedAt.UnixMicro(), int64(stage))
}

// stepSpan returns the span id of the current step in the current stage attempt.
func stepSpan(row *store.Row) trace.SpanID {
	return tracing.SpanID("step", row.Operation.ID, row.StartedAt.UnixMicro(), int64(row.Stage), int64(row.StageAttempt), int64(row.Step))
}

// stepContext returns the span context of the current step.
func stepContext(row *store.Row) trace.SpanContext {
	parent := parentOf(row)
	if !parent.IsValid() {
		return parent
	}
	return parent.WithSpanID(stepSpan(row))
}

// commandTrace returns the trace context of the current command: its step, or without tracing the context of the request.
func (t *tracer) commandTrace(row *store.Row) string {
	if t == nil {
		return row.TraceParent
	}
	if step := tracing.Parent(stepContext(row)); step != "" {
		return step
	}
	return row.TraceParent
}

// factTrace returns the trace context of a fact: its operation, or without tracing the context of the request.
func (t *tracer) factTrace(row *store.Row) string {
	if t == nil {
		return row.TraceParent
	}
	parent := parentOf(row)
	if !parent.IsValid() {
		return row.TraceParent
	}
	return tracing.Parent(parent.WithSpanID(operationSpan(row)))
}

// openStep returns the current step from its first command until the operation leaves it; nil if there is none. While an operation
// waits for the repetition of a stage, no step is open.
func openStep(p *process.Process, s *engine.State) *process.Step {
	if s.Status != event.InProgress || s.StepAttempt == 0 || s.Stage >= len(p.Stages) || s.Step >= len(p.Stages[s.Stage].Steps) {
		return nil
	}
	step := &p.Stages[s.Stage].Steps[s.Step]
	if s.Waiting() && step.Retry.Scope != process.ScopeStep {
		return nil
	}
	return step
}

// transition adds the spans of the steps, stages and operations that ended between two states.
func (t *tracer) transition(spans []tracing.Span, p *process.Process, before, after *store.Row, history []engine.Entry, now time.Time) []tracing.Span {
	request := parentOf(after)
	if !request.IsValid() {
		return spans
	}
	m := spanBuilder{p: p, before: before, after: after, history: history, now: now, request: request, spans: spans}
	m.steps()
	m.stages()
	m.operation()
	return m.spans
}

// spanBuilder creates the spans of one transition.
type spanBuilder struct {
	p             *process.Process
	before, after *store.Row
	history       []engine.Entry
	now           time.Time
	request       trace.SpanContext
	spans         []tracing.Span
}

// add adds a span with the common attributes.
func (m *spanBuilder) add(s tracing.Span, parent trace.SpanID) {
	op := &m.after.Operation
	s.Parent = m.request
	if parent.IsValid() {
		s.Parent = m.request.WithSpanID(parent)
	}
	s.Kind = trace.SpanKindInternal
	s.Attributes = append(s.Attributes,
		attribute.String("keb.operation.id", op.ID), attribute.String("keb.operation.type", string(op.Type)),
		attribute.String("keb.instance.id", op.InstanceID), attribute.String("keb.plan", op.Plan.Name))
	if s.End.Before(s.Start) {
		s.Start = s.End // the times are from different clocks
	}
	m.spans = append(m.spans, s)
}

// steps adds the step that the operation left, and the steps that the transition ended without a command.
func (m *spanBuilder) steps() {
	left := openStep(m.p, &m.before.State)
	if left != nil && m.stays() {
		left = nil
	}
	recorded := false
	for i := range m.history {
		e := &m.history[i]
		if e.Kind != engine.KindStep {
			continue
		}
		if left != nil && !recorded && e.Stage == m.before.Stage && e.Step == m.before.Step && e.StageAttempt == m.before.StageAttempt {
			recorded = true
			m.leave(left, string(e.Outcome), e.Error)
			continue
		}
		if openStep(m.p, &m.before.State) != nil && e.Stage == m.before.Stage && e.Step == m.before.Step {
			continue // the step continues with another execution
		}
		step := &m.p.Stages[e.Stage].Steps[e.Step]
		span := tracing.Span{
			ID: tracing.SpanID("passed", m.after.Operation.ID, e.Cursor), Name: "step " + step.Name, Start: m.now, End: m.now,
			Attributes: m.attributes(step, e.Stage, e.StageAttempt, string(e.Outcome)),
		}
		fail(&span, e.Error)
		m.add(span, stageSpan(m.after, e.Stage))
	}
	if left != nil && !recorded {
		m.leave(left, "interrupted", m.after.Error)
	}
}

// stays reports whether the current step has not changed.
func (m *spanBuilder) stays() bool {
	b, a := m.before, m.after
	return openStep(m.p, &a.State) != nil && a.Stage == b.Stage && a.Step == b.Step && a.StageAttempt == b.StageAttempt
}

// leave adds the span of the step that the operation left, including all executions and waits.
func (m *spanBuilder) leave(step *process.Step, outcome string, failure *event.Error) {
	start := m.before.FirstTriedAt
	if m.before.StepAttempt > 1 && step.Retry.Scope != process.ScopeStep && !m.before.SentAt.IsZero() {
		start = m.before.SentAt // FirstTriedAt belongs to an earlier attempt of the stage
	}
	span := tracing.Span{
		ID: stepSpan(m.before), Name: "step " + step.Name, Start: start, End: m.now,
		Attributes: append(m.attributes(step, m.before.Stage, m.before.StageAttempt, outcome), attribute.Int("keb.step.attempt", m.before.StepAttempt)),
	}
	fail(&span, failure)
	m.add(span, stageSpan(m.before, m.before.Stage))
}

func (m *spanBuilder) attributes(step *process.Step, stage, stageAttempt int, outcome string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("keb.stage", m.p.Stages[stage].Name), attribute.String("keb.step", step.Name),
		attribute.String("keb.worker", step.Worker), attribute.Int("keb.stage.attempt", stageAttempt),
		attribute.String("keb.outcome", outcome),
	}
}

// stages adds the stage that the operation left, and the stages that the transition completed.
func (m *spanBuilder) stages() {
	b, a := m.before, m.after
	final := a.Status.Final()
	first := b.Stage
	switch {
	case b.Status == event.InProgress && (a.Stage != b.Stage || final):
		start := b.StageStartedAt
		if start.IsZero() {
			start = b.StartedAt // an earlier release did not store the start of the stage
		}
		m.stage(b.Stage, start, b.StageAttempt, a.Error != nil && (final || a.Ending != nil) && a.Status != event.Succeeded)
		first++
	case m.started():
		if final && a.Status != event.Succeeded {
			m.stage(a.Stage, m.now, 1, true) // a condition could not be evaluated
		}
	default:
		return
	}
	if b.Ending != nil || a.Ending != nil {
		return // moving to the finally stage and back completes no other stage
	}
	for i := first; i < min(a.Stage, len(m.p.Stages)); i++ {
		m.stage(i, m.now, 1, false)
	}
}

// started reports whether this transition started the operation.
func (m *spanBuilder) started() bool {
	return m.before.Status == event.Pending && m.after.StartedAt.Equal(m.now)
}

func (m *spanBuilder) stage(i int, start time.Time, attempts int, failed bool) {
	if i >= len(m.p.Stages) {
		return
	}
	span := tracing.Span{
		ID: stageSpan(m.after, i), Name: "stage " + m.p.Stages[i].Name, Start: start, End: m.now,
		Attributes: []attribute.KeyValue{attribute.String("keb.stage", m.p.Stages[i].Name), attribute.Int("keb.stage.attempts", attempts)},
	}
	if failed {
		fail(&span, m.after.Error)
	}
	m.add(span, operationSpan(m.after))
}

// operation adds the span of the operation if it has ended.
func (m *spanBuilder) operation() {
	a := m.after
	if !a.Status.Final() || m.before.Status.Final() {
		return
	}
	span := tracing.Span{
		ID: operationSpan(a), Name: "operation " + string(a.Operation.Type), Start: a.StartedAt, End: a.FinishedAt,
		Attributes: []attribute.KeyValue{
			attribute.String("keb.operation.state", string(a.Status)),
			attribute.StringSlice("keb.operation.not_completed", a.NotCompleted),
		},
	}
	if m.before.Status == event.Pending && !m.started() {
		// The operation was cancelled while it was pending.
		span.ID, span.Start = tracing.SpanID("operation", a.Operation.ID, -a.Cursor), a.CreatedAt
	} else {
		span.Attributes = append(span.Attributes, attribute.Float64("keb.operation.waited", a.StartedAt.Sub(a.CreatedAt).Seconds()))
	}
	if a.Status != event.Succeeded {
		fail(&span, a.Error)
	}
	m.add(span, trace.SpanID{})
}

func fail(s *tracing.Span, e *event.Error) {
	if e == nil {
		return
	}
	s.Failure = e.Message
	s.Attributes = append(s.Attributes, attribute.String("error.type", e.Reason), attribute.String("keb.component", e.Component))
}

// trace records the spans of committed works.
func (d *Dispatcher) trace(works []*work) {
	if d.tracer == nil {
		return
	}
	for _, w := range works {
		for _, s := range w.spans {
			tracing.Record(context.Background(), d.tracer.t, s)
		}
		w.spans = nil
	}
}

// applied is a result that was applied to its operation.
type applied struct {
	delivery Delivery
	// step is the span of its step.
	step trace.SpanContext
}

// traceResults records a span for each applied result, with the step as parent and a link to the execution.
func (d *Dispatcher) traceResults(ctx context.Context, works []*work, start time.Time) {
	if d.tracer == nil {
		return
	}
	now := d.deps.Now()
	for _, w := range works {
		for _, a := range w.applied {
			e, subject := a.delivery.Message()
			span := tracing.Span{
				Parent: a.step, Name: "process " + subject, Kind: trace.SpanKindConsumer, Start: start, End: now,
				Attributes: messaging(e, subject, event.ResultsConsumer().Name, w.row.Operation.ID),
			}
			if execution := tracing.ParseParent(bus.TraceOf(e)); execution.IsValid() {
				span.Links = []trace.Link{{SpanContext: execution}}
			}
			tracing.Record(ctx, d.tracer.t, span)
		}
		w.applied = nil
	}
}

func messaging(e cloudevents.Event, subject, consumer, operationID string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "nats"), attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.operation.name", "process"),
		attribute.String("messaging.destination.name", subject), attribute.String("messaging.consumer.group.name", consumer),
		attribute.String("messaging.message.id", e.ID()), attribute.String("keb.operation.id", operationID),
	}
}

// startIntake starts the span of the intake of a request, and returns the trace context of the operation. The sampling decision is made
// here for all spans of the operation. For a request without a trace context, the operation id becomes the trace id.
func (d *Dispatcher) startIntake(ctx context.Context, delivery Delivery, op *event.Operation) (string, trace.Span) {
	e, subject := delivery.Message()
	incoming := bus.TraceOf(e)
	if d.tracer == nil {
		return incoming, nil
	}
	parent := tracing.ParseParent(incoming)
	if parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	} else if id, err := uuid.Parse(op.ID); err == nil {
		ctx = tracing.WithTraceID(ctx, trace.TraceID(id))
	}
	attributes := append(messaging(e, subject, event.RequestsConsumer().Name, op.ID),
		attribute.String("keb.operation.type", string(op.Type)), attribute.String("keb.instance.id", op.InstanceID))
	_, span := d.tracer.t.Start(ctx, "process "+subject, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithTimestamp(d.deps.Now()), trace.WithAttributes(attributes...))
	decided := span.SpanContext()
	if parent.IsValid() {
		decided = parent.WithTraceFlags(decided.TraceFlags())
	}
	return tracing.Parent(decided), span
}

// endIntake ends the span of an intake.
func (d *Dispatcher) endIntake(span trace.Span, failure error) {
	if span == nil {
		return
	}
	if failure != nil {
		span.SetStatus(codes.Error, "the request is not taken in")
	}
	span.End(trace.WithTimestamp(d.deps.Now()))
}
