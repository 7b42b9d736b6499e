package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

func TestDrain_RunningStepsFinish_RestIsReturned(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Step")
	one := config(func(c *worker.Config) { c.Concurrency = 1 })
	w := o.start([]worker.Step{g.step()}, one, ackWait(never))
	first := command("Step")
	o.send(first)
	receive(t, "the step starts", g.started)
	rest := []event.StepExecute{command("Step"), command("Step"), command("Step")}
	o.send(rest...)
	w.cancel()
	o.start([]worker.Step{noop("Step")}, one, ackWait(never))
	for range rest {
		if r := o.next(); r.OperationID == first.Operation.ID {
			t.Error("the running step was returned to the bus")
		}
	}
	close(g.release)
	if r := o.next(); r.OperationID != first.Operation.ID || r.Type != event.TypeStepSucceeded {
		t.Errorf("%s of %s, want the success of the step that ran", r.Type, r.OperationID)
	}
	if err := w.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	o.settled()
	if n := g.runs.Load(); n != 1 {
		t.Errorf("the stopped worker ran %d steps, want 1", n)
	}
}

func TestDrain_Timeout_InterruptsStep(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(op operation, err error) (operation, time.Duration, error){
		"error": func(op operation, err error) (operation, time.Duration, error) { return op, 0, err },
		"retry": func(op operation, err error) (operation, time.Duration, error) {
			return worker.Retry(op, time.Second, err)
		},
		"failure": func(op operation, err error) (operation, time.Duration, error) {
			return worker.Fail(op, &worker.Error{Component: "avs", Err: err})
		},
		"budget spent": func(op operation, err error) (operation, time.Duration, error) {
			return worker.RetryWithoutFail(op, time.Second, 0, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOrchestrator(t)
			started := make(chan struct{}, 1)
			w := o.start([]worker.Step{named("Step", func(ctx context.Context, op operation) (operation, time.Duration, error) {
				started <- struct{}{}
				<-ctx.Done()
				return end(op, ctx.Err())
			})}, config(func(c *worker.Config) { c.DrainTimeout = 20 * time.Millisecond }))
			o.send(command("Step"))
			receive(t, "the step starts", started)
			if err := w.stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
			o.noResult()
			o.start([]worker.Step{noop("Step")})
			if r := o.next(); r.Type != event.TypeStepSucceeded {
				t.Errorf("result %s, want the success of the second worker", r.Type)
			}
			o.settled()
		})
	}
}

func TestDrain_InterruptedStep_ReportsWhatItDid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do      func(op operation) error
		details string
		removed []string
	}{
		"saved details":     {func(op operation) error { return op.SaveDetails(map[string]int{"id": 7}) }, `{"id":7}`, nil},
		"removed an object": {func(op operation) error { op.NoteRemoved("evaluation 12"); return nil }, "", []string{"evaluation 12"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOrchestrator(t)
			started := make(chan struct{}, 1)
			w := o.start([]worker.Step{named("Step", func(ctx context.Context, op operation) (operation, time.Duration, error) {
				if err := c.do(op); err != nil {
					t.Error(err)
				}
				started <- struct{}{}
				<-ctx.Done()
				return op, 0, ctx.Err()
			})}, config(func(c *worker.Config) { c.DrainTimeout = 20 * time.Millisecond }))
			o.send(command("Step"))
			receive(t, "the step starts", started)
			if err := w.stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
			r := o.next()
			if r.Type != event.TypeStepRetry || string(r.Details) != c.details || r.Error == nil || r.Error.Reason != worker.ReasonTimeout {
				t.Errorf("%s with details %s and error %+v: want a retry with details %s", r.Type, r.Details, r.Error, c.details)
			}
			require.Equal(t, c.removed, r.Removed)
			o.settled()
		})
	}
}

func TestDrain_StepIgnoresContext_IsNamed(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Stuck")
	w := o.start([]worker.Step{g.step()}, config(func(c *worker.Config) { c.DrainTimeout = 20 * time.Millisecond }))
	o.send(command("Stuck"))
	receive(t, "the step starts", g.started)
	err := w.stop()
	if err == nil || !strings.Contains(err.Error(), "did not stop") || !strings.Contains(err.Error(), "Stuck") {
		t.Errorf("stop: %v, want an error that names the step", err)
	}
	close(g.release)
}

// After the removal of a ramp, the orchestrator has commands executed elsewhere that no ramped replica reports.
func TestDrain_Questions_AreLeftToOtherReplicas(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Step")
	const subject = "keb.ask.tested.state"
	w := o.start([]worker.Step{g.step()}, config(func(c *worker.Config) {
		c.Questions = []worker.Question{{Subject: subject, Answer: func(context.Context, []byte) (any, error) { return "ok", nil }}}
	}))
	o.send(command("Step"))
	receive(t, "the step starts", g.started)
	ask := func() error {
		_, err := o.bus.NATS().Request(subject, []byte("{}"), soon)
		return err
	}
	require.NoError(t, ask())
	w.cancel()
	testkit.Eventually(t, soon, "the draining worker has unsubscribed", func() bool { return errors.Is(ask(), nats.ErrNoResponders) })
	close(g.release)
	o.next()
}

func TestDrain_RampedWorker_ReportsItsCommand(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Step")
	w := o.start([]worker.Step{g.step()}, config(func(c *worker.Config) { c.Ramped = true }))
	others, ramped := command("Step"), command("Step")
	o.send(others)
	m := o.message(ramped)
	m.Subject = event.CommandSubject(event.Ramped(workerName), ramped.Step)
	require.NoError(t, o.bus.Publish(t.Context(), m))
	if op := receive(t, "the step starts", g.started); op.ID != ramped.Operation.ID {
		t.Errorf("the ramped worker executes a command of the other replicas")
	}
	w.cancel()
	var stats micro.Stats
	reports := func() bool {
		answer, err := o.bus.NATS().Request("$SRV.STATS."+worker.ServicePrefix+workerName, nil, soon)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(answer.Data, &stats))
		return slices.ContainsFunc(stats.Endpoints, func(e *micro.EndpointStats) bool {
			return string(e.Data) == `{"commands":["`+event.CommandID(ramped.Operation.ID, ramped.Cursor)+`"]}`
		})
	}
	testkit.Eventually(t, soon, "it pulls no more", func() bool {
		c, err := o.bus.JetStream().Consumer(t.Context(), string(event.StreamCommands), event.Ramped(workerName))
		return err == nil && c.CachedInfo().NumWaiting == 0
	})
	if !reports() {
		t.Errorf("the draining worker reports %+v", stats)
	}
	close(g.release)
	if r := o.next(); r.Type != event.TypeStepSucceeded || r.Subject != event.ResultSubject(workerName, "Step") {
		t.Errorf("result %s on %s", r.Type, r.Subject)
	}
	require.NoError(t, w.stop())
	if n := g.runs.Load(); n != 1 {
		t.Errorf("the ramped worker has executed %d commands, want its own", n)
	}
}
