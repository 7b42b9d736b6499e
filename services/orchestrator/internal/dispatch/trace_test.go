package dispatch

import (
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const requestSpan = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

var walked = fstest.MapFS{"update.yaml": {Data: []byte(`
operation: update
timeout: 1h
stages:
  - name: local
    steps:
      - {name: Starting, worker: orchestrator}
      - {name: Never, worker: alpha, when: "false"}
  - name: change
    steps:
      - {name: One, worker: alpha, execution: 1m, retry: {every: 10s, timeout: 10m}, onTimeout: skip}
      - {name: Two, worker: alpha, execution: 1m, retry: {every: 10s, timeout: 10m, scope: step}}
      - {name: Three, worker: beta, execution: 1m, retry: {every: 10s, timeout: 20m}, onFailure: skip}
  - name: nothing
    steps:
      - {name: Nothing, worker: alpha, when: "false"}
  - name: last
    steps:
      - {name: Four, worker: beta, execution: 1m, retry: {every: 10s, timeout: 10m}}
finally:
  - {name: Five, worker: beta, execution: 1m, retry: {every: 10s, timeout: 5m}, onTimeout: skip, onFailure: skip}
`)}}

// walk applies random events to an operation and collects its spans.
type walk struct {
	t       *rapid.T
	p       *process.Process
	tracer  *tracer
	row     *store.Row
	now     time.Time
	spans   []tracing.Span
	parents map[trace.SpanID]string // the steps of commands, by parent span
}

func (w *walk) apply(e engine.Event) {
	state, effects, err := engine.Apply(w.p, w.row.State, e, w.now)
	if err != nil || !effects.Changed {
		return
	}
	next := *w.row
	next.State = state
	w.spans = w.tracer.transition(w.spans, w.p, w.row, &next, effects.History, w.now)
	if rapid.Bool().Draw(w.t, "is read from the database") {
		next.State = asStored(next.State)
	}
	w.row = &next
	if w.row.InFlight() {
		sc := tracing.ParseParent(w.tracer.commandTrace(w.row))
		_, command := engine.Command(w.p, &w.row.State)
		w.parents[sc.SpanID()] = command.Step
	}
}

// asStored cuts the times of a state as the database does.
func asStored(s engine.State) engine.State {
	for _, t := range []*time.Time{&s.FirstTriedAt, &s.ExecuteBefore, &s.DueAt, &s.StartedAt, &s.FinishedAt, &s.Deadline, &s.SentAt, &s.StageStartedAt, &s.ConditionSince} {
		*t = t.Truncate(time.Microsecond)
	}
	return s
}

func TestTracing_EverySchedule_SpansHaveParents(t *testing.T) {
	t.Parallel()
	set, err := process.Load(walked)
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		w := &walk{t: t, p: set[event.Update], tracer: &tracer{}, now: epoch.Add(123456789), parents: map[trace.SpanID]string{}}
		w.row = &store.Row{
			State:       engine.New(event.Operation{ID: "6f7d1f7e-0000-4000-8000-000000000001", Type: event.Update, InstanceID: "i"}),
			TraceParent: requestSpan, CreatedAt: w.now,
		}
		runs := 0
		for range rapid.IntRange(5, 60).Draw(t, "events") {
			// Span ids have the precision of the database, so two runs must not start within one microsecond.
			w.now = w.now.Add(time.Duration(rapid.Int64Range(int64(time.Microsecond), int64(3*time.Minute)).Draw(t, "pause")))
			result := engine.Result{Cursor: w.row.AwaitedCursor(), StartedAt: w.now, FinishedAt: w.now}
			switch rapid.IntRange(0, 12).Draw(t, "event") {
			case 0, 1:
				w.apply(engine.Start{})
			case 2, 3, 4:
				result.Outcome = event.OutcomeSucceeded
				w.apply(result)
			case 5, 6:
				result.Outcome = event.OutcomeRetry
				w.apply(result)
			case 7:
				result.Outcome, result.Error = event.OutcomeFailed, &event.Error{Component: "alpha", Reason: "r", Message: "m"}
				w.apply(result)
			case 8:
				result.Outcome = event.OutcomeStageLost
				w.apply(result)
			case 9, 10:
				w.apply(engine.Due{WorkerAlive: rapid.Bool().Draw(t, "alive")})
			case 11:
				if rapid.IntRange(0, 5).Draw(t, "cancel") == 0 {
					w.apply(engine.Cancel{Reason: "enough"})
				} else {
					w.apply(engine.Retry{By: "jane"})
				}
			case 12:
				if p := w.row.Position(w.p); p != nil {
					w.apply(engine.SkipStep{Step: p.Step, By: "jane"})
				}
			}
		}
		w.end()
		for _, s := range w.spans {
			if s.Name == "operation update" {
				runs++
			}
		}
		w.check(runs)
	})
}

// end completes the operation, which must end all spans.
func (w *walk) end() {
	for range 200 {
		w.now = w.now.Add(time.Second)
		switch {
		case w.row.Status.Final():
			return
		case w.row.Status == event.Pending:
			w.apply(engine.Start{})
		case w.row.InFlight():
			w.apply(engine.Result{Outcome: event.OutcomeSucceeded, Cursor: w.row.AwaitedCursor(), StartedAt: w.now, FinishedAt: w.now})
		default:
			w.now = w.now.Add(time.Minute)
			w.apply(engine.Due{WorkerAlive: true})
		}
	}
	w.t.Fatal("the operation does not end")
}

func (w *walk) check(runs int) {
	request := tracing.ParseParent(requestSpan)
	names := map[trace.SpanID]string{request.SpanID(): "the request"}
	for _, s := range w.spans {
		if other, twice := names[s.ID]; twice {
			w.t.Errorf("%q and %q have the same id", s.Name, other)
		}
		names[s.ID] = s.Name
	}
	for _, s := range w.spans {
		if names[s.Parent.SpanID()] == "" || s.Parent.TraceID() != request.TraceID() {
			w.t.Errorf("the parent of %q is not a span", s.Name)
		}
		if s.End.Before(s.Start) || s.Start.Before(epoch) {
			w.t.Errorf("%q lasts from %s to %s", s.Name, s.Start, s.End)
		}
	}
	for id, step := range w.parents {
		if names[id] != "step "+step {
			w.t.Errorf("the parent of a command for %s is %q", step, names[id])
		}
	}
	if runs == 0 {
		w.t.Errorf("%d spans, but none of an operation", len(w.spans))
	}
}

// intake sends a request with a trace context, and returns the row of its operation.
func (b *bundle) intake(o *orchestrator, parent string) *store.Row {
	b.t.Helper()
	op := event.Operation{ID: uuid.Must(uuid.NewV7()).String(), Type: event.Update, InstanceID: uuid.NewString(), Plan: event.Plan{ID: "p", Name: "p"}}
	e, err := bus.New(event.TypeOperationRequested, op.ID, event.SourceBroker, op.ID, epoch, event.OperationRequested{Operation: op, RequestedAt: epoch})
	require.NoError(b.t, err)
	if parent != "" {
		e.SetExtension(bus.TraceParent, parent)
	}
	require.NoError(b.t, b.bus.Publish(b.t.Context(), bus.Message{Subject: event.RequestSubject(op.Type), ID: op.ID, Event: e}))
	require.NoError(b.t, o.Requests(b.t.Context(), b.take(b.requests, 1)))
	return b.row(op.ID)
}

func TestTracing_Sampling_IsDecidedAtIntake(t *testing.T) {
	t.Parallel()
	b := setup(t)
	spans := tracetest.NewSpanRecorder()
	on, off := b.orchestrator(), b.orchestrator()
	on.tracer = newTracer(tracing.TracerOf(tracing.NewProvider(spans), "x"))

	if row := b.intake(on, requestSpan); row.TraceParent != requestSpan {
		t.Errorf("trace context of a sampled request is stored as %q", row.TraceParent)
	}
	unwanted := requestSpan[:53] + "00"
	row := b.intake(on, unwanted)
	if row.TraceParent != unwanted || on.tracer.commandTrace(row) != unwanted {
		t.Errorf("trace context of an unsampled request is stored as %q", row.TraceParent)
	}
	row = b.intake(on, "")
	own := tracing.ParseParent(row.TraceParent)
	if got := own.TraceID().String(); got != without(row.Operation.ID, '-') || !own.IsSampled() {
		t.Errorf("trace context of a request without one is stored as %q, want the operation id %s", row.TraceParent, row.Operation.ID)
	}
	if row := b.intake(off, requestSpan); row.TraceParent != requestSpan {
		t.Errorf("trace context without tracing is stored as %q", row.TraceParent)
	}
	if row := b.intake(off, ""); row.TraceParent != "" {
		t.Errorf("trace context is %q without tracing and without one in the request, want none", row.TraceParent)
	}
	if ended := spans.Ended(); len(ended) != 2 || ended[1].SpanContext().SpanID() != own.SpanID() {
		t.Errorf("%d spans of intakes, want 2", len(ended))
	}
}

func without(s string, r rune) string {
	return string(slices.DeleteFunc([]rune(s), func(c rune) bool { return c == r }))
}

func TestTracing_Off_AllocatesNothing(t *testing.T) {
	var d Dispatcher
	works := []*work{{row: &store.Row{TraceParent: requestSpan}}}
	allocations := testing.AllocsPerRun(100, func() {
		if d.tracer.commandTrace(works[0].row) != requestSpan || d.tracer.factTrace(works[0].row) != requestSpan {
			t.Error("the trace context of the request is not propagated")
		}
		d.trace(works)
		d.traceResults(t.Context(), works, epoch)
	})
	if allocations != 0 {
		t.Errorf("%v allocations, want none", allocations)
	}
}
