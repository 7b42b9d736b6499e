package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

// overdueGrace shortens the time for which a step may run after its deadline.
func overdueGrace(d time.Duration) setting {
	return func(_ *worker.Config, _ *worker.Deps, w *worker.Worker) {
		if w != nil {
			worker.SetOverdueGrace(w, d)
		}
	}
}

// hanging returns a command whose time limit is short.
func hanging(step string) event.StepExecute {
	c := command(step)
	c.ExecuteBefore = time.Now().Add(300 * time.Millisecond).UTC()
	return c
}

// resent returns the command as the orchestrator sends it again after its limit.
func resent(c event.StepExecute) event.StepExecute {
	c.Dispatch++
	c.ExecuteBefore = time.Now().Add(time.Minute).UTC()
	return c
}

func (r *running) awaitAbandoned(n float64) {
	r.t.Helper()
	testkit.Eventually(r.t, soon, "the abandoned steps are counted", func() bool { return r.metric("keb_worker_steps_abandoned") == n })
}

func TestOverdue_StepIgnoresContext_FreesSlot(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Stuck")
	var log testkit.Log
	w := o.start([]worker.Step{g.step(), noop("Quick")}, overdueGrace(50*time.Millisecond), func(c *worker.Config, d *worker.Deps, _ *worker.Worker) {
		c.Concurrency = 1
		d.Log = slog.New(slog.NewJSONHandler(&log, nil))
	})
	stuck, quick := hanging("Stuck"), command("Quick")
	o.send(stuck)
	receive(t, "the step starts", g.started)
	o.send(quick)
	if r := o.next(); r.OperationID != quick.Operation.ID {
		t.Errorf("result of %s, want that of the step after the abandoned one", r.Step)
	}
	w.awaitAbandoned(1)
	if n := w.metric("keb_worker_steps_running"); n != 0 {
		t.Errorf("%v steps are running, want none", n)
	}
	line := log.String()
	for _, want := range []string{"is abandoned", `"worker":"tested"`, `"step":"Stuck"`, `"operation_id":"` + stuck.Operation.ID, `"running_since"`} {
		if !strings.Contains(line, want) {
			t.Errorf("log without %s:\n%s", want, line)
		}
	}
	close(g.release)
	if r := o.next(); r.OperationID != stuck.Operation.ID || r.Type != event.TypeStepSucceeded {
		t.Errorf("%s of %s, want the late success: the orchestrator still waits for it", r.Type, r.OperationID)
	}
	w.awaitAbandoned(0)
}

func TestOverdue_UnwantedResult_IsDropped(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	release, started := make(chan struct{}), make(chan struct{}, 1)
	w := o.start([]worker.Step{named("Stuck", func(_ context.Context, op operation) (operation, time.Duration, error) {
		started <- struct{}{}
		<-release
		op.Remember("late", []byte("value"))
		return op, 0, nil
	})}, overdueGrace(0))
	asked := make(chan struct{}, 1)
	o.say(func(context.Context, []event.CommandRef) ([]event.CommandRef, error) {
		select {
		case asked <- struct{}{}:
			return nil, errors.New("not now")
		default:
			return nil, nil
		}
	})
	o.send(hanging("Stuck"))
	receive(t, "the step starts", started)
	w.awaitAbandoned(1)
	close(release)
	w.awaitAbandoned(0)
	testkit.Eventually(t, soon, "the question is repeated after an error", func() bool { return len(o.questions()) == 2 })
	require.NoError(t, w.stop())
	o.noResult()
	bucket, err := o.bus.JetStream().KeyValue(t.Context(), event.StageBucket)
	if err != nil {
		return // no step has written to the stage memory
	}
	if keys, err := bucket.Keys(t.Context()); err == nil && len(keys) > 0 {
		t.Errorf("the stage memory has %v, want nothing from a result that does not count", keys)
	}
}

func TestOverdue_FrozenProcess_AsksBeforeResult(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	o.say(func(context.Context, []event.CommandRef) ([]event.CommandRef, error) { return nil, nil })
	var frozen atomic.Int64
	w := o.start([]worker.Step{named("Slow", func(_ context.Context, op operation) (operation, time.Duration, error) {
		frozen.Store(int64(2 * time.Minute)) // no timer has run meanwhile
		return op, 0, nil
	})}, func(_ *worker.Config, d *worker.Deps, _ *worker.Worker) {
		d.Now = func() time.Time { return time.Now().Add(time.Duration(frozen.Load())) }
	})
	o.send(command("Slow"))
	testkit.Eventually(t, soon, "the worker asks about the command", func() bool { return len(o.questions()) == 1 })
	require.NoError(t, w.stop())
	o.noResult()
}

func TestOverdue_NoProgress_CommandLeavesStream(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Stuck")
	o.start([]worker.Step{g.step()}, ackWait(time.Second))
	o.send(hanging("Stuck"))
	receive(t, "the step starts", g.started)
	o.settled() // redelivered, because progress is no longer reported, and dropped as late
	close(g.release)
	o.next()
}

func TestOverdue_ResentCommand_IsLeftToOtherReplica(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Stuck")
	w := o.start([]worker.Step{g.step()}, overdueGrace(0))
	c := hanging("Stuck")
	o.send(c)
	receive(t, "the step starts", g.started)
	w.awaitAbandoned(1)
	o.send(resent(c))
	testkit.Eventually(t, soon, "the re-sent command is returned", func() bool {
		return w.metric("keb_worker_commands_ignored_total", "reason=overdue") > 0
	})
	o.start([]worker.Step{noop("Stuck")})
	if r := o.next(); r.Event.ID() != event.DispatchID(c.Operation.ID, c.Cursor, 2) {
		t.Errorf("result %s, want that of the other replica", r.Event.ID())
	}
	o.say(func(context.Context, []event.CommandRef) ([]event.CommandRef, error) { return nil, nil })
	close(g.release)
	w.awaitAbandoned(0)
	o.settled()
	if n := g.runs.Load(); n != 1 {
		t.Errorf("the step ran %d times in the replica in which it hangs, want once", n)
	}
}

func TestOverdue_NewCursor_IsExecutedBesideAbandoned(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Stuck")
	w := o.start([]worker.Step{g.step()}, overdueGrace(0))
	c := hanging("Stuck")
	o.send(c)
	receive(t, "the step starts", g.started)
	w.awaitAbandoned(1)
	next := resent(c)
	next.Cursor++ // the operation has moved on, for example by a retry of the operator
	o.send(next)
	receive(t, "a new command of the same step starts", g.started)
	close(g.release)
	for range 2 {
		o.next()
	}
	w.awaitAbandoned(0)
	o.settled()
}

func TestOverdue_AbandonedSteps_DoNotDelayDrain(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Stuck")
	w := o.start([]worker.Step{g.step()}, overdueGrace(0), config(func(c *worker.Config) { c.DrainTimeout = 10 * time.Minute }))
	o.send(hanging("Stuck"))
	receive(t, "the step starts", g.started)
	w.awaitAbandoned(1)
	err := w.stop()
	if err == nil || !strings.Contains(err.Error(), "Stuck") {
		t.Errorf("stop: %v, want an error that names the step", err)
	}
	close(g.release)
	w.awaitAbandoned(0)
}

// cancel publishes the notice that a command is cancelled.
func (o *orchestrator) cancel(c event.StepExecute, reason string) {
	o.t.Helper()
	body, err := json.Marshal(event.CancelNotice{CommandRef: event.CommandRef{OperationID: c.Operation.ID, Cursor: c.Cursor}, Reason: reason})
	require.NoError(o.t, err)
	require.NoError(o.t, o.bus.NATS().Publish(event.CancelSubject(workerName), body))
}

func TestCancel_RunningStep_EndsWithCause(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	started, causes := make(chan struct{}, 1), make(chan error, 1)
	o.start([]worker.Step{named("Step", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		if err := op.SaveDetails(map[string]int{"id": 7}); err != nil {
			t.Error(err)
		}
		started <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return worker.Fail(op, &worker.Error{Component: "avs", Err: ctx.Err()})
	})})
	c := command("Step")
	o.send(c)
	receive(t, "the step starts", started)
	other := c
	other.Cursor++
	o.cancel(other, "not this one")
	require.NoError(t, o.bus.NATS().Publish(event.CancelSubject(workerName), []byte("{")))
	o.cancel(c, "cancelled by alice")
	cause := receive(t, "the context ends", causes)
	if !errors.Is(cause, worker.ErrCancelled) || !errors.Is(cause, context.Canceled) || !strings.Contains(cause.Error(), "cancelled by alice") {
		t.Errorf("cause %v, want worker.ErrCancelled with the reason", cause)
	}
	r := o.next()
	if r.Type != event.TypeStepRetry || string(r.Details) != `{"id":7}` || r.Error == nil || r.Error.Reason != worker.ReasonCancelled {
		t.Errorf("%s with details %s and error %+v: want a retry with the details and %s", r.Type, r.Details, r.Error, worker.ReasonCancelled)
	}
	o.settled()
}

func TestCancel_StepIsDone_KeepsOutcome(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	started := make(chan struct{}, 1)
	o.start([]worker.Step{named("Step", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		started <- struct{}{}
		<-ctx.Done()
		return op, 0, nil
	})})
	c := command("Step")
	o.send(c)
	receive(t, "the step starts", started)
	o.cancel(c, "cancelled by alice")
	if r := o.next(); r.Type != event.TypeStepSucceeded {
		t.Errorf("result %s, want the success that the step returned", r.Type)
	}
}

func TestExecute_TimeLimit_IsCause(t *testing.T) {
	t.Parallel()
	var cause error
	r := workertest.Run(t, named("Step", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		<-ctx.Done()
		cause = context.Cause(ctx)
		return op, 0, cause
	}), workertest.Operation{Limit: time.Millisecond})
	if !errors.Is(cause, worker.ErrTimeLimit) || !errors.Is(cause, context.DeadlineExceeded) {
		t.Errorf("cause %v, want worker.ErrTimeLimit", cause)
	}
	var timeout interface{ Timeout() bool }
	if !errors.As(cause, &timeout) || !timeout.Timeout() {
		t.Error("the cause is not a timeout")
	}
	if r.Outcome != event.OutcomeRetry || r.Error.Reason != worker.ReasonTimeout {
		t.Errorf("%s with %+v, want a retry with %s", r.Outcome, r.Error, worker.ReasonTimeout)
	}
}
