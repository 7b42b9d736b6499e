package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/libs/worker"
)

const stepOfCommand = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func traced(p trace.TracerProvider) func(*worker.Config, *worker.Deps, *worker.Worker) {
	return func(_ *worker.Config, d *worker.Deps, _ *worker.Worker) { d.TracerProvider = p }
}

func (o *orchestrator) sendTraced(parent string, c event.StepExecute) {
	o.t.Helper()
	m := o.message(c)
	m.Event.SetExtension(bus.TraceParent, parent)
	require.NoError(o.t, o.bus.Publish(o.t.Context(), m))
}

func TestTrace_Execution_IsChildOfStep(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	o := newOrchestrator(t)
	secret := "s3cr3t-of-the-customer"
	stop, err := o.bus.Answer(event.AskCredentialsAs(workerName), "broker", func(ctx context.Context, _ []byte) (any, error) {
		if !trace.SpanContextFromContext(ctx).IsValid() {
			t.Error("the question has no trace context")
		}
		return event.CredentialsAnswer{Credentials: fmt.Appendf(nil, "%q", secret)}, nil
	})
	require.NoError(t, err)
	defer stop()
	o.start([]worker.Step{
		named("Traced", func(ctx context.Context, op operation) (operation, time.Duration, error) {
			var told string
			if err := op.ClaimCredentials(ctx, event.CredentialsKubeconfig, &told); err != nil {
				return op, 0, err
			}
			_, own := trace.SpanFromContext(ctx).TracerProvider().Tracer("team").Start(ctx, "own span of the step")
			own.End()
			return op, 0, fmt.Errorf("the system says %s", told)
		}),
		named("Polls", func(_ context.Context, op operation) (operation, time.Duration, error) { return op, time.Minute, nil }),
	}, traced(tracing.NewProvider(spans)))

	claiming := command("Traced")
	claiming.Operation.Credentials = []string{event.CredentialsKubeconfig}
	o.sendTraced(stepOfCommand, claiming)
	failed := o.next()
	o.sendTraced(stepOfCommand, command("Polls"))
	polled := o.next()

	byName := map[string]sdk.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		byName[s.Name()] = s
		for _, text := range append(textsOf(s.Attributes()), s.Status().Description) {
			if strings.Contains(text, secret) {
				t.Errorf("%s contains %q", s.Name(), text)
			}
		}
	}
	execution := byName["process keb.command.tested.Traced"]
	if execution == nil || byName["own span of the step"] == nil || byName["request "+event.AskCredentialsAs(workerName)] == nil {
		t.Fatalf("spans are %v", byName)
	}
	if p := execution.Parent(); tracing.Parent(p) != stepOfCommand || execution.SpanKind() != trace.SpanKindConsumer {
		t.Errorf("the parent of the execution is %s", tracing.Parent(p))
	}
	for _, child := range []string{"own span of the step", "request " + event.AskCredentialsAs(workerName)} {
		if byName[child].Parent().SpanID() != execution.SpanContext().SpanID() {
			t.Errorf("%s is not a child of the execution", child)
		}
	}
	if got := failed.Event.Extensions()[bus.TraceParent]; got != tracing.Parent(execution.SpanContext()) {
		t.Errorf("the result has trace context %v, want the execution", got)
	}
	for _, want := range []attribute.KeyValue{attribute.String("keb.outcome", "failed"), attribute.String("messaging.system", "nats")} {
		if !has(execution, want) {
			t.Errorf("the execution has no attribute %s=%s", want.Key, want.Value.String())
		}
	}
	looked := byName["process keb.command.tested.Polls"]
	if polled.Type != event.TypeStepRetry || !has(looked, attribute.String("keb.outcome", "retry")) || looked.Status().Description != "" {
		t.Errorf("a retry without an error is %v", looked)
	}
}

func TestTrace_UnsampledCommand_HasNoSpan(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	o := newOrchestrator(t)
	o.start([]worker.Step{named("Traced", func(context.Context, operation) (operation, time.Duration, error) {
		return operation{}, 0, errors.New("no")
	})}, traced(tracing.NewProvider(spans)))
	unwanted := strings.TrimSuffix(stepOfCommand, "1") + "0"
	o.sendTraced(unwanted, command("Traced"))
	r := o.next()
	if parent, _ := r.Event.Extensions()[bus.TraceParent].(string); len(spans.Ended()) != 0 || !strings.HasSuffix(parent, "-00") || parent[:35] != unwanted[:35] {
		t.Errorf("%d spans, the result carries %q", len(spans.Ended()), parent)
	}
}

func has(s sdk.ReadOnlySpan, want attribute.KeyValue) bool {
	return slices.Contains(s.Attributes(), want)
}

func textsOf(list []attribute.KeyValue) []string {
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = a.Value.String()
	}
	return texts
}
