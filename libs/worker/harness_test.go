package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(dyingWorker); url != "" {
		runDyingWorker(url)
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	soon       = time.Minute
	workerName = "tested"
	// never is an ack wait that is longer than any test.
	never = 10 * time.Minute
	// oneKey is a stage key of 32 zero bytes.
	oneKey = "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
)

// orchestrator is a fake orchestrator that sends commands and reads results, on a real NATS server.
type orchestrator struct {
	t       testing.TB
	nats    *testkit.NATSServer
	bus     *bus.Bus
	results chan result
	done    chan struct{}

	mu sync.Mutex
	// says answers which commands are current; asked records the questions.
	says  func(ctx context.Context, commands []event.CommandRef) ([]event.CommandRef, error)
	asked [][]event.CommandRef
	// extended are commands with an extended limit.
	extended []event.Extended
	// stopAnswers stops answering questions.
	stopAnswers func()
}

// result is a result of any type with its envelope.
type result struct {
	event.Result
	RetryAfter   float64      `json:"retryAfter"`
	NotCompleted bool         `json:"notCompleted"`
	Error        *event.Error `json:"error"`

	Event   cloudevents.Event `json:"-"`
	Type    event.Type        `json:"-"`
	Subject string            `json:"-"`
}

func newOrchestrator(t testing.TB) *orchestrator {
	t.Helper()
	return newOrchestratorFor(t, func(o *orchestrator, ctx context.Context, _ chan<- struct{}) {
		err := o.bus.Consume(ctx, bus.ConsumeConfig{Consumer: event.ResultsConsumer()}, func(_ context.Context, batch []*bus.Delivery) {
			for _, d := range batch {
				o.results <- o.read(d)
				if err := d.Ack(); err != nil {
					t.Error(err)
				}
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// newOrchestratorFor creates an orchestrator with another consumer of results.
func newOrchestratorFor(t testing.TB, consume func(o *orchestrator, ctx context.Context, done chan<- struct{})) *orchestrator {
	t.Helper()
	o := &orchestrator{t: t, nats: testkit.NATS(t), results: make(chan result, 100), done: make(chan struct{}, 1)}
	o.bus = o.connect()
	require.NoError(t, o.bus.EnsureStreams(t.Context()))
	o.answerCurrent()
	o.background(func(ctx context.Context) { consume(o, ctx, o.done) })
	return o
}

// everyOne answers that all commands are current.
func everyOne(_ context.Context, commands []event.CommandRef) ([]event.CommandRef, error) {
	return commands, nil
}

func (o *orchestrator) say(f func(ctx context.Context, commands []event.CommandRef) ([]event.CommandRef, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.says = f
}

// questions returns the recorded questions about commands.
func (o *orchestrator) questions() [][]event.CommandRef {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked)
}

// answerCurrent starts to answer which commands are current.
func (o *orchestrator) answerCurrent() {
	o.t.Helper()
	o.say(everyOne)
	stop, err := o.bus.Answer(event.AskCurrentAs(workerName), "orchestrator", func(ctx context.Context, raw []byte) (any, error) {
		var q event.CurrentRequest
		if err := json.Unmarshal(raw, &q); err != nil {
			return nil, err
		}
		o.mu.Lock()
		o.asked = append(o.asked, q.Commands)
		says, extended := o.says, slices.Clone(o.extended)
		o.mu.Unlock()
		current, err := says(ctx, q.Commands)
		return event.CurrentAnswer{Current: current, Extended: extended}, err
	})
	require.NoError(o.t, err)
	o.stopAnswers = sync.OnceFunc(stop)
	o.t.Cleanup(o.stopAnswers)
}

func (o *orchestrator) connect() *bus.Bus {
	o.t.Helper()
	b, err := bus.Connect(o.t.Context(), bus.Config{URL: o.nats.URL(), Name: o.t.Name()}, bus.Deps{})
	require.NoError(o.t, err)
	o.t.Cleanup(b.Close)
	return b
}

// background runs f until the test ends, and waits for it.
func (o *orchestrator) background(f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { f(ctx) })
	o.t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

func (o *orchestrator) read(d *bus.Delivery) result {
	r := result{Event: d.Event, Type: event.Type(d.Event.Type()), Subject: d.Subject}
	if err := json.Unmarshal(d.Event.Data(), &r); err != nil {
		o.t.Errorf("result on %s: %v", d.Subject, err)
	}
	return r
}

// running is a running worker.
type running struct {
	*worker.Worker
	t        testing.TB
	registry *prometheus.Registry
	cancel   context.CancelFunc
	ended    chan struct{}
	err      error
}

type setting func(*worker.Config, *worker.Deps, *worker.Worker)

func ackWait(d time.Duration) setting {
	return func(_ *worker.Config, _ *worker.Deps, w *worker.Worker) {
		if w != nil {
			worker.SetAckWait(w, d)
		}
	}
}

func config(change func(c *worker.Config)) setting {
	return func(c *worker.Config, _ *worker.Deps, _ *worker.Worker) { change(c) }
}

// start runs a worker with its own connection until the test ends.
func (o *orchestrator) start(steps []worker.Step, settings ...setting) *running {
	return o.startOn(o.connect(), steps, settings...)
}

func (o *orchestrator) startOn(b *bus.Bus, steps []worker.Step, settings ...setting) *running {
	o.t.Helper()
	keys, err := seal.ParseKeyring(oneKey)
	require.NoError(o.t, err)
	r := &running{t: o.t, registry: prometheus.NewRegistry(), ended: make(chan struct{})}
	cfg := worker.Config{Name: workerName, Version: "1.2.3", DrainTimeout: 5 * time.Second}
	deps := worker.Deps{
		Bus: b, StageMemory: stagemem.New(b.JetStream(), keys), Registerer: r.registry, Log: testkit.Logger(o.t),
	}
	for _, s := range settings {
		s(&cfg, &deps, nil)
	}
	r.Worker, err = worker.New(cfg, deps, steps...)
	require.NoError(o.t, err)
	for _, s := range settings {
		s(&cfg, &deps, r.Worker)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() {
		defer close(r.ended)
		r.err = r.Run(ctx)
	}()
	o.t.Cleanup(func() {
		cancel()
		<-r.ended
	})
	return r
}

// stop stops the worker and waits until it has ended.
func (r *running) stop() error {
	r.t.Helper()
	r.cancel()
	select {
	case <-r.ended:
	case <-time.After(soon):
		r.t.Fatal("the worker did not stop")
	}
	return r.err
}

// metric returns the sum of a metric over the series with all given labels "name=value".
func (r *running) metric(name string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	require.NoError(r.t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var have strings.Builder
			for _, l := range m.GetLabel() {
				fmt.Fprintf(&have, "%s=%s;", l.GetName(), l.GetValue())
			}
			matches := true
			for _, l := range labels {
				matches = matches && strings.Contains(have.String(), l+";")
			}
			if matches {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

var commandNumber = struct {
	sync.Mutex
	n int64
}{}

// command returns a command for a step of a new operation.
func command(step string) event.StepExecute {
	commandNumber.Lock()
	defer commandNumber.Unlock()
	commandNumber.n++
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d", commandNumber.n)
	return event.StepExecute{
		Operation: event.Operation{
			ID: id, Type: event.Provision, InstanceID: "i-" + id, Plan: event.Plan{ID: "p", Name: "azure"},
			Runtime: event.Runtime{Name: "r", ShootName: "s", Provider: "azure", Region: "westeurope"},
		},
		Stage: "create_runtime", Step: step, Cursor: commandNumber.n, Dispatch: 1, StageAttempt: 1, StepAttempt: 1,
		FirstTriedAt: time.Now().UTC(), ExecuteBefore: time.Now().Add(time.Minute).UTC(),
	}
}

func (o *orchestrator) message(c event.StepExecute) bus.Message {
	o.t.Helper()
	e, err := bus.New(event.TypeStepExecute, event.CommandID(c.Operation.ID, c.Cursor), event.SourceOrchestrator, c.Operation.ID, time.Now(), c)
	require.NoError(o.t, err)
	return bus.Message{
		Subject: event.CommandSubject(workerName, c.Step), ID: event.DispatchID(c.Operation.ID, c.Cursor, c.Dispatch), Event: e,
	}
}

func (o *orchestrator) send(commands ...event.StepExecute) {
	o.t.Helper()
	messages := make([]bus.Message, len(commands))
	for i, c := range commands {
		messages[i] = o.message(c)
	}
	require.NoError(o.t, o.bus.Publish(o.t.Context(), messages...))
}

// next returns the next result.
func (o *orchestrator) next() result {
	o.t.Helper()
	select {
	case r := <-o.results:
		return r
	case <-time.After(soon):
		o.t.Fatal("there is no result")
	}
	return result{}
}

// noResult fails the test if there is a result. This is only reliable after all commands were acknowledged.
func (o *orchestrator) noResult() {
	o.t.Helper()
	select {
	case r := <-o.results:
		o.t.Fatalf("unexpected result: %s %s", r.Type, r.Event.ID())
	default:
	}
}

// settled waits until no command is pending or unacknowledged.
func (o *orchestrator) settled() {
	o.t.Helper()
	testkit.Eventually(o.t, soon, "all commands acknowledged", func() bool {
		s, err := o.bus.JetStream().Stream(o.t.Context(), string(event.StreamCommands))
		return err == nil && s.CachedInfo().State.Msgs == 0
	})
}

func (o *orchestrator) consumer() *jetstream.ConsumerInfo {
	o.t.Helper()
	c, err := o.bus.JetStream().Consumer(o.t.Context(), string(event.StreamCommands), workerName)
	require.NoError(o.t, err)
	return c.CachedInfo()
}

func receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(soon):
		t.Fatalf("%s: did not happen", what)
	}
	panic("unreachable")
}

func named(name string, run func(ctx context.Context, op operation) (operation, time.Duration, error)) worker.Step {
	return stepFunc{name: name, run: plain(run)}
}

func noop(name string) worker.Step {
	return named(name, func(_ context.Context, op operation) (operation, time.Duration, error) { return op, 0, nil })
}
