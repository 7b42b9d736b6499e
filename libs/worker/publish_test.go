package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

func TestPublish_EachOutcome_HasItsEvent(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	boom := errors.New("boom")
	wantError := event.Error{Component: "tested", Reason: "err_step_failed", Message: "boom"}
	for _, c := range []struct {
		step  string
		run   func(op operation) (operation, time.Duration, error)
		want  event.Type
		check func(t *testing.T, r result)
	}{
		{"Done", func(op operation) (operation, time.Duration, error) { return op, 0, nil }, event.TypeStepSucceeded, nil},
		{
			"Again",
			func(op operation) (operation, time.Duration, error) {
				return worker.Retry(op, 1500*time.Millisecond, boom)
			},
			event.TypeStepRetry,
			func(t *testing.T, r result) {
				if r.RetryAfter != 1.5 || r.Error == nil || *r.Error != wantError {
					t.Errorf("retry after %g because of %+v", r.RetryAfter, r.Error)
				}
			},
		},
		{
			"Waits",
			func(op operation) (operation, time.Duration, error) { return worker.Wait(op, time.Second, "for it") },
			event.TypeStepRetry,
			func(t *testing.T, r result) {
				if r.Error != nil || r.Message != "for it" {
					t.Errorf("waits with error %+v and message %q", r.Error, r.Message)
				}
			},
		},
		{
			"Fails",
			func(op operation) (operation, time.Duration, error) { return op, 0, boom },
			event.TypeStepFailed,
			func(t *testing.T, r result) {
				if r.Error == nil || *r.Error != wantError {
					t.Errorf("error %+v", r.Error)
				}
			},
		},
		{
			"Panics",
			func(operation) (operation, time.Duration, error) { panic("boom") },
			event.TypeStepFailed,
			func(t *testing.T, r result) {
				if r.Error == nil || r.Error.Message != "the step panicked: boom" {
					t.Errorf("error %+v", r.Error)
				}
			},
		},
		{
			"Skips",
			func(op operation) (operation, time.Duration, error) { return worker.Skip(op, "nothing to do") },
			event.TypeStepSkipped,
			func(t *testing.T, r result) {
				if r.NotCompleted || r.Message != "nothing to do" {
					t.Errorf("skipped %+v", r)
				}
			},
		},
		{
			"Gives-Up",
			func(op operation) (operation, time.Duration, error) {
				return worker.RetryWithoutFail(op, time.Second, 0, boom)
			},
			event.TypeStepSkipped,
			func(t *testing.T, r result) {
				if !r.NotCompleted || r.Error == nil || *r.Error != wantError {
					t.Errorf("skipped %+v", r)
				}
			},
		},
	} {
		t.Run(c.step, func(t *testing.T) {
			w := o.start([]worker.Step{named(c.step, func(_ context.Context, op operation) (operation, time.Duration, error) {
				if err := op.SaveDetails(map[string]int{"id": 7}); err != nil {
					t.Error(err)
				}
				return c.run(op)
			})})
			sent := command(c.step)
			o.send(sent)
			r := o.next()
			id := event.DispatchID(sent.Operation.ID, sent.Cursor, 1)
			type envelope struct{ Type, ID, Source, Subject, NATSSubject string }
			got := envelope{string(r.Type), r.Event.ID(), r.Event.Source(), r.Event.Subject(), r.Subject}
			want := envelope{string(c.want), id, "/keb/worker/tested", sent.Operation.ID, "keb.result.tested." + c.step}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("envelope (-want +got):\n%s", diff)
			}
			shared := r.Result
			if shared.StartedAt.IsZero() || shared.FinishedAt.Before(shared.StartedAt) {
				t.Errorf("ran from %s to %s", shared.StartedAt, shared.FinishedAt)
			}
			shared.StartedAt, shared.FinishedAt, shared.Message = time.Time{}, time.Time{}, ""
			wantShared := event.Result{
				OperationID: sent.Operation.ID, Cursor: sent.Cursor, Stage: sent.Stage, Step: c.step,
				Worker: event.Worker{Name: workerName, Version: "1.2.3"}, Details: json.RawMessage(`{"id":7}`),
			}
			if diff := cmp.Diff(wantShared, shared); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if c.check != nil {
				c.check(t, r)
			}
			o.settled()
			if err := w.stop(); err != nil {
				t.Error(err)
			}
			if n := w.metric("keb_worker_steps_total", "step="+c.step, "worker=tested"); n != 1 {
				t.Errorf("keb_worker_steps_total is %g, want 1", n)
			}
			if n := w.metric("keb_worker_step_duration_seconds", "step="+c.step); n != 1 {
				t.Errorf("keb_worker_step_duration_seconds has %g observations, want 1", n)
			}
			if n := w.metric("keb_worker_panics_total"); (n == 1) != (c.step == "Panics") {
				t.Errorf("keb_worker_panics_total is %g", n)
			}
			if n := w.metric("keb_worker_steps_running"); n != 0 {
				t.Errorf("keb_worker_steps_running is %g after the end", n)
			}
		})
	}
}

func TestPublish_BusRestarts_ResultSurvives(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	started, release := make(chan struct{}, 10), make(chan struct{})
	o.start([]worker.Step{named("Long", func(context.Context, operation) (op operation, _ time.Duration, _ error) {
		started <- struct{}{}
		<-release
		return op, 0, nil
	})})
	o.send(command("Long"))
	receive(t, "the step starts", started)
	o.nats.Shutdown()
	close(release)
	o.nats.Restart(t)
	if r := o.next(); r.Type != event.TypeStepSucceeded {
		t.Errorf("result %s", r.Type)
	}
	o.settled()
}

func TestPublish_TraceContext_IsPropagated(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	o := newOrchestrator(t)
	o.start([]worker.Step{named("Traced", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		// The trace context must be propagated as by any instrumented client.
		e, err := bus.New(event.TypeStepRetry, "x", "/x", "", time.Now(), map[string]string{"step": "Inner"})
		if err != nil {
			t.Error(err)
		}
		if err := o.bus.Publish(ctx, bus.Message{Subject: "keb.result.tested.Inner", Event: e}); err != nil {
			t.Error(err)
		}
		return op, 0, nil
	})})
	m := o.message(command("Traced"))
	m.Event.SetExtension(bus.TraceParent, parent)
	require.NoError(t, o.bus.Publish(t.Context(), m))
	for range 2 {
		r := o.next()
		if got := r.Event.Extensions()[bus.TraceParent]; got != parent {
			t.Errorf("%s has trace %v, want %s", r.Subject, got, parent)
		}
	}
}

func TestPublish_BusRejectsResult_OthersSucceed(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	stream, err := o.bus.JetStream().Stream(t.Context(), string(event.StreamResults))
	require.NoError(t, err)
	// The server has a data race if a consumer is created while its stream is changed.
	testkit.Eventually(t, soon, "the consumer of results", func() bool {
		_, err := stream.Consumer(t.Context(), event.ResultsConsumer().Name)
		return err == nil
	})
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgSize = 4 << 10
	_, err = o.bus.JetStream().UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	var runs atomic.Int64
	w := o.start([]worker.Step{noop("Small"), named("Large", func(_ context.Context, op operation) (operation, time.Duration, error) {
		size := 10
		if runs.Add(1) == 1 {
			size = 10_000
		}
		return op, 0, op.SaveDetails(map[string]string{"x": strings.Repeat("y", size)})
	})})
	o.send(command("Small"), command("Large"), command("Small"))
	for _, want := range []string{"Small", "Small", "Large"} {
		if r := o.next(); r.Step != want || r.Type != event.TypeStepSucceeded {
			t.Errorf("%s of %s, want the success of %s", r.Type, r.Step, want)
		}
	}
	o.settled()
	if n := w.metric("keb_worker_results_unpublished_total"); n != 1 || runs.Load() != 2 {
		t.Errorf("%g results unpublished, %d runs of the step: want 1 and 2", n, runs.Load())
	}
}
