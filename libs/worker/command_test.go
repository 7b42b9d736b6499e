package worker_test

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// gate is a step that reports its start and then waits.
type gate struct {
	name    string
	started chan operation
	release chan struct{}
	runs    atomic.Int64
}

func newGate(name string) *gate {
	return &gate{name: name, started: make(chan operation, 100), release: make(chan struct{})}
}

func (g *gate) step() worker.Step {
	return named(g.name, func(_ context.Context, op operation) (operation, time.Duration, error) {
		g.runs.Add(1)
		g.started <- op
		<-g.release
		return op, 0, nil
	})
}

func TestCommand_ResentWhileRunning_IsIgnored(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Slow")
	w := o.start([]worker.Step{g.step()})
	c := command("Slow")
	o.send(c)
	receive(t, "the step starts", g.started)
	c.Dispatch = 2
	o.send(c)
	testkit.Eventually(t, soon, "the duplicate is counted", func() bool {
		return w.metric("keb_worker_commands_ignored_total", "reason=duplicate") == 1
	})
	close(g.release)
	if r := o.next(); r.Event.ID() != event.DispatchID(c.Operation.ID, c.Cursor, 1) {
		t.Errorf("result of %s, want that of the first dispatch", r.Event.ID())
	}
	o.settled()
	o.noResult()
	if n := g.runs.Load(); n != 1 {
		t.Errorf("the step ran %d times, want once", n)
	}
}

func TestCommand_RedeliveredWhileRunning_StaysOpen(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Slow")
	// The heartbeat interval of 100 s lets the server redeliver after 0.3 s.
	w := o.start([]worker.Step{g.step()}, ackWait(5*time.Minute))
	commands := string(event.StreamCommands)
	testkit.Eventually(t, soon, "the worker has created its consumer", func() bool {
		_, err := o.bus.JetStream().Consumer(t.Context(), commands, workerName)
		return err == nil
	})
	cfg := o.consumer().Config
	cfg.AckWait = 300 * time.Millisecond
	_, err := o.bus.JetStream().UpdateConsumer(t.Context(), commands, cfg)
	require.NoError(t, err)
	o.send(command("Slow"))
	receive(t, "the step starts", g.started)
	testkit.Eventually(t, soon, "redeliveries are counted as duplicates", func() bool {
		return w.metric("keb_worker_commands_ignored_total", "reason=duplicate") >= 2
	})
	if n := o.consumer().NumAckPending; n != 1 {
		t.Errorf("%d commands are unacknowledged while the step runs, want 1", n)
	}
	close(g.release)
	o.next()
	o.settled()
	if q := o.questions(); len(q) > 0 || g.runs.Load() != 1 {
		t.Errorf("asked %v and ran %d times, want no question and one run", q, g.runs.Load())
	}
}

func TestCommand_ProcessDies_GoesToAnother(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Slow")
	deadBus := o.connect()
	o.startOn(deadBus, []worker.Step{g.step()}, ackWait(300*time.Millisecond))
	o.send(command("Slow"))
	receive(t, "the step starts", g.started)
	// For the server, a killed process is a closed connection.
	deadBus.NATS().Close()
	o.start([]worker.Step{noop("Slow")}, ackWait(300*time.Millisecond))
	if r := o.next(); r.Type != event.TypeStepSucceeded {
		t.Errorf("result %s", r.Type)
	}
	close(g.release)
	o.settled()
}

func TestCommand_Late_IsDropped(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	w := o.start([]worker.Step{named("Late", func(_ context.Context, op operation) (operation, time.Duration, error) {
		t.Error("a late command was executed")
		return op, 0, nil
	})})
	c := command("Late")
	c.ExecuteBefore = time.Now().Add(-time.Millisecond)
	o.send(c)
	testkit.Eventually(t, soon, "the late command is counted", func() bool {
		return w.metric("keb_worker_commands_ignored_total", "reason=late") == 1
	})
	o.settled()
	o.noResult()
}

func TestCommand_Late_UsesInjectedClock(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	clock := testkit.NewClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	var left atomic.Int64
	o.start([]worker.Step{named("On-Time", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		deadline, _ := ctx.Deadline()
		left.Store(int64(time.Until(deadline)))
		return op, 0, nil
	})}, func(_ *worker.Config, d *worker.Deps, _ *worker.Worker) { d.Now = clock.Now })
	c := command("On-Time")
	c.ExecuteBefore = clock.Now().Add(time.Hour)
	o.send(c)
	if r := o.next(); !r.StartedAt.Equal(clock.Now()) {
		t.Errorf("started at %s, want the clock's %s", r.StartedAt, clock.Now())
	}
	if d := time.Duration(left.Load()); d < 59*time.Minute || d > time.Hour {
		t.Errorf("the step had %s, want an hour", d)
	}
}

func TestCommand_UnknownStep_IsReturned(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	old := o.start([]worker.Step{noop("Old")})
	o.send(command("New"))
	testkit.Eventually(t, soon, "the old version has seen the command", func() bool {
		return old.metric("keb_worker_commands_ignored_total", "reason=unknown_step") > 0
	})
	o.noResult()
	o.start([]worker.Step{noop("New"), noop("Old")})
	if r := o.next(); r.Step != "New" {
		t.Errorf("result of %q", r.Step)
	}
	o.settled()
}

func TestCommand_Unreadable_GoesToDeadLetters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command func(c *event.StepExecute)
		event   func(e *cloudevents.Event)
		want    string
	}{
		"broken JSON":      {event: func(e *cloudevents.Event) { e.DataEncoded = []byte(`{"step":`) }, want: "unexpected end"},
		"wrong member":     {event: func(e *cloudevents.Event) { e.DataEncoded = []byte(`{"cursor":"x"}`) }, want: "cursor"},
		"another type":     {event: func(e *cloudevents.Event) { e.SetType("io.example.other") }, want: "io.example.other"},
		"no operation":     {command: func(c *event.StepExecute) { c.Operation.ID = "" }, want: "operation.id"},
		"no step":          {command: func(c *event.StepExecute) { c.Step = "" }, want: "step"},
		"no executeBefore": {command: func(c *event.StepExecute) { c.ExecuteBefore = time.Time{} }, want: "executeBefore"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOrchestrator(t)
			w := o.start([]worker.Step{noop("Known")})
			sent := command("Known")
			m := o.message(sent)
			if c.command != nil {
				c.command(&sent)
				var err error
				m.Event.DataEncoded, err = json.Marshal(sent)
				require.NoError(t, err)
			}
			if c.event != nil {
				c.event(&m.Event)
			}
			require.NoError(t, o.bus.Publish(t.Context(), m))
			var reason string
			testkit.Eventually(t, soon, "a dead letter", func() bool {
				s, err := o.bus.JetStream().Stream(t.Context(), string(event.StreamDead))
				if err != nil {
					return false
				}
				letter, err := s.GetLastMsgForSubject(t.Context(), event.DeadSubject(event.StreamCommands))
				if err != nil {
					return false
				}
				reason, err = url.PathUnescape(letter.Header.Get(bus.HeaderDeadReason))
				return err == nil
			})
			if !strings.Contains(reason, c.want) {
				t.Errorf("reason %q: want it to name %q", reason, c.want)
			}
			o.settled()
			o.noResult()
			if n := w.metric("keb_worker_commands_ignored_total", "reason=unreadable"); n != 1 {
				t.Errorf("counted %g, want 1", n)
			}
			o.send(command("Known")) // it does not block the next one
			o.next()
		})
	}
}

func TestCommand_LongStep_IsNotRedelivered(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Long")
	// Each report restarts the server's timer, so a pause of the machine may take two thirds of this.
	const wait = 4 * time.Second
	progress := make(chan string, 100)
	sub, err := o.bus.NATS().Subscribe("$JS.ACK."+string(event.StreamCommands)+".>", func(m *nats.Msg) {
		progress <- string(m.Data)
	})
	require.NoError(t, err)
	w := o.start([]worker.Step{g.step()}, ackWait(wait))
	o.send(command("Long"))
	receive(t, "the step starts", g.started)
	begin := time.Now()
	for time.Since(begin) < wait+wait/6 {
		if got := receive(t, "progress", progress); got != "+WPI" {
			t.Fatalf("the worker sent %q while the step ran, want progress", got)
		}
	}
	if n := o.consumer().NumRedelivered; n != 0 {
		t.Errorf("%d commands were redelivered", n)
	}
	close(g.release)
	o.next()
	o.settled()
	if err := sub.Unsubscribe(); err != nil {
		t.Error(err)
	}
	if n := w.metric("keb_worker_commands_ignored_total", "reason=duplicate"); n != 0 || g.runs.Load() != 1 {
		t.Errorf("%g duplicates, %d runs: want none and one", n, g.runs.Load())
	}
}

func TestCommand_NoSlot_GoesToAnotherProcess(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Step")
	one := config(func(c *worker.Config) { c.Concurrency = 1 })
	o.start([]worker.Step{g.step()}, one, ackWait(600*time.Millisecond))
	o.send(command("Step"))
	receive(t, "the first process is busy", g.started)
	commands := []event.StepExecute{command("Step"), command("Step"), command("Step"), command("Step")}
	o.send(commands...)
	o.start([]worker.Step{noop("Step")}, one, ackWait(600*time.Millisecond))
	for range commands {
		o.next()
	}
	if n := g.runs.Load(); n != 1 {
		t.Errorf("the busy process ran %d steps, want 1", n)
	}
	close(g.release)
	o.next()
	o.settled()
}

func TestConcurrency_Limit_IsReachedNotExceeded(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	g := newGate("Step")
	w := o.start([]worker.Step{g.step()}, config(func(c *worker.Config) { c.Concurrency = 3 }))
	commands := make([]event.StepExecute, 7)
	for i := range commands {
		commands[i] = command("Step")
	}
	o.send(commands...)
	for range 3 {
		receive(t, "a step starts", g.started)
	}
	if n, most := w.metric("keb_worker_steps_running"), w.metric("keb_worker_concurrency"); n != 3 || most != 3 {
		t.Errorf("%g steps of at most %g run, want 3 of 3", n, most)
	}
	close(g.release)
	for range commands {
		o.next()
	}
	o.settled()
}

func TestRateLimit_Steps_StartAtRate(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	starts := make(chan time.Time, 10)
	o.start([]worker.Step{named("Step", func(_ context.Context, op operation) (operation, time.Duration, error) {
		starts <- time.Now()
		return op, 0, nil
	})}, config(func(c *worker.Config) { c.RateLimit = 20 }))
	commands := make([]event.StepExecute, 5)
	for i := range commands {
		commands[i] = command("Step")
	}
	before := time.Now()
	o.send(commands...)
	var last time.Time
	for range commands {
		last = receive(t, "a start", starts)
	}
	// Four intervals of 50 ms from before the first start, because a step may read the clock late. The limiter may be slightly
	// early compared with another clock reading.
	if d := last.Sub(before); d < 190*time.Millisecond {
		t.Errorf("5 steps started within %s, want at least 200ms at 20 per second", d)
	}
}

func TestRateLimit_CommandGetsLate_IsDropped(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	clock := testkit.NewClock(time.Now())
	late := []event.StepExecute{command("Step"), command("Step")}
	w := o.start([]worker.Step{named("Step", func(_ context.Context, op operation) (operation, time.Duration, error) {
		clock.Advance(time.Hour) // while the rate limit delays the second command
		return op, 0, nil
	})}, func(c *worker.Config, d *worker.Deps, _ *worker.Worker) { c.RateLimit, d.Now = 1, clock.Now })
	o.send(late...)
	o.next()
	testkit.Eventually(t, soon, "the second command is late", func() bool {
		return w.metric("keb_worker_commands_ignored_total", "reason=late") == 1
	})
	o.settled()
	o.noResult()
}
