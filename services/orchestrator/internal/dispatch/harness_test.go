package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/overlay"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Tests{M: m}) }

const patience = 20 * time.Second

var epoch = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

var processes = fstest.MapFS{"update.yaml": {Data: []byte(`
operation: update
timeout: 1h
stages:
  - name: change
    steps:
      - {name: One, worker: alpha, execution: 1m, retry: {every: 10s, timeout: 10m}}
      - {name: Two, worker: alpha, execution: 1m, retry: {every: 10s, timeout: 10m}}
`)}, "provision.yaml": {Data: []byte(`
operation: provision
timeout: 1h
stages:
  - name: create
    steps:
      - {name: One, worker: alpha, retry: {every: 10s, timeout: 10m}}
`)}, "upgradeKyma.yaml": {Data: []byte(`
operation: upgradeKyma
timeout: 1h
stages:
  - name: change
    steps:
      - {name: One, worker: alpha}
      - {name: Two, worker: alpha}
finally:
  - {name: Three, worker: gamma, retry: {every: 10s, timeout: 1m}}
`)}, "upgradeCluster.yaml": {Data: []byte(`
operation: upgradeCluster
timeout: 25h
stages:
  - name: change
    steps:
      - {name: Starting, worker: orchestrator}
      - {name: One, worker: alpha, execution: 1m, retry: {every: 2m}}
      - {name: Two, worker: alpha, execution: 1m, retry: {every: 2m}}
      - {name: Three, worker: alpha, execution: 1m, retry: {every: 2m, scope: step}}
`)}, "deprovision.yaml": {Data: []byte(`
operation: deprovision
timeout: 1h
stages:
  - name: remove
    steps:
      - {name: One, worker: alpha}
`)}}

// bundle is a bus and a database; only the test consumes messages.
type bundle struct {
	t        *testing.T
	nats     *testkit.NATSServer
	bus      *bus.Bus
	url      string // of the database
	db       *sqlx.DB
	store    *store.Store
	set      process.Set
	clock    *testkit.Clock
	results  chan *bus.Delivery
	requests chan *bus.Delivery

	mu       sync.Mutex
	commands []string // published message ids
	dead     []string
}

func setup(t *testing.T) *bundle {
	t.Helper()
	n := testkit.NATS(t)
	b := &bundle{
		t: t, nats: n, bus: testkit.Bus(t, n.URL()), clock: testkit.NewClock(epoch),
		results: make(chan *bus.Delivery, 1000), requests: make(chan *bus.Delivery, 1000),
	}
	b.url = pgtest.Database(t, store.Migrate)
	db, err := postgres.Open(t.Context(), postgres.Config{URL: b.url, MaxOpen: 8, ByIndex: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	b.db = db
	if b.store, err = store.New(t.Context(), db, db); err != nil {
		t.Fatal(err)
	}
	if b.set, err = process.Load(processes); err != nil {
		t.Fatal(err)
	}
	b.listen("keb.command.>", func(m *nats.Msg) { b.commands = append(b.commands, m.Header.Get(nats.MsgIdHdr)) })
	b.listen("keb.dead.*", func(m *nats.Msg) { b.dead = append(b.dead, m.Header.Get(bus.HeaderDeadReason)) })
	b.consume(event.ResultsConsumer(), b.results)
	b.consume(event.RequestsConsumer(), b.requests)
	return b
}

func (b *bundle) listen(subject string, see func(m *nats.Msg)) {
	b.t.Helper()
	sub, err := b.bus.NATS().Subscribe(subject, func(m *nats.Msg) {
		b.mu.Lock()
		defer b.mu.Unlock()
		see(m)
	})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = sub.Unsubscribe() })
}

// consume sends every delivery of a consumer to a channel.
func (b *bundle) consume(spec event.ConsumerSpec, to chan<- *bus.Delivery) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- b.bus.Consume(ctx, bus.ConsumeConfig{Consumer: spec}, func(_ context.Context, batch []*bus.Delivery) {
			for _, d := range batch {
				to <- d
			}
		})
	}()
	b.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("consume %s: %v", spec.Stream, err)
		}
	})
}

func (b *bundle) take(from <-chan *bus.Delivery, n int) []*bus.Delivery {
	b.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	var batch []*bus.Delivery
	for range n {
		select {
		case d := <-from:
			batch = append(batch, d)
		case <-limit.C:
			b.t.Fatalf("%d messages have arrived, want %d", len(batch), n)
		}
	}
	return batch
}

// emptyMemory is an empty stage memory.
type emptyMemory struct{}

func (emptyMemory) Purge(context.Context, string, string) error { return nil }

// workers reports whether all workers are alive.
type workers bool

func (w workers) Serves(string, string) bool { return bool(w) }

func (w workers) ServesRamped(string, string, string) bool { return bool(w) }

// faultyBus is a bus that rejects messages.
type faultyBus struct {
	*bus.Bus
	mu     sync.Mutex
	reject func(subject string) bool // nil rejects nothing
	// after means that a rejected message is stored, and only its confirmation is lost.
	after bool
	// silent means that rejected messages are not answered, and unanswered is their number.
	silent     bool
	unanswered int
}

func (f *faultyBus) set(reject func(subject string) bool, after bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reject, f.after = reject, after
}

func (f *faultyBus) Publish(ctx context.Context, msgs ...bus.Message) error {
	f.mu.Lock()
	reject, after, cause := f.reject, f.after, errors.New("rejected")
	if f.silent {
		cause = context.DeadlineExceeded
	}
	f.mu.Unlock()
	failed := bus.PublishError{Total: len(msgs)}
	var good []bus.Message
	for i, m := range msgs {
		bad := reject != nil && reject(m.Subject)
		if bad {
			failed.Failures = append(failed.Failures, bus.Failure{Index: i, Subject: m.Subject, EventID: m.Event.ID(), Err: cause})
		}
		if !bad || after {
			good = append(good, m)
		}
	}
	if err := f.Bus.Publish(ctx, good...); err != nil {
		return err
	}
	if len(failed.Failures) > 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.silent {
			f.unanswered += len(failed.Failures)
		}
		return &failed
	}
	return nil
}

func commandsOnly(subject string) bool { return strings.HasPrefix(subject, "keb.command.") }
func factsOnly(subject string) bool    { return strings.HasPrefix(subject, "keb.fact.") }

// orchestrator is one dispatcher with a bus of its own.
type orchestrator struct {
	*Dispatcher
	bus *faultyBus
}

func (b *bundle) orchestrator() *orchestrator {
	b.t.Helper()
	definitions, err := overlay.NewDefinitions(b.t.Context(), b.store, b.set, epoch)
	require.NoError(b.t, err)
	f := &faultyBus{Bus: b.bus}
	d, err := New(Config{}, Deps{
		Store: Postgres{Store: b.store}, Publisher: f, Definitions: definitions, Workers: workers(true), Purger: NewPurger(emptyMemory{}, testkit.Logger(b.t)),
		Backlog: b.bus, Log: testkit.Logger(b.t), Metrics: NewMetrics(prometheus.NewRegistry()), Now: b.clock.Now, Wake: func(time.Time) {},
	})
	require.NoError(b.t, err)
	return &orchestrator{Dispatcher: d, bus: f}
}

// Results and Requests accept deliveries of the bus.
func (o *orchestrator) Results(ctx context.Context, batch []*bus.Delivery) error {
	return o.Dispatcher.Results(ctx, Deliveries(batch))
}

func (o *orchestrator) Requests(ctx context.Context, batch []*bus.Delivery) error {
	return o.Dispatcher.Requests(ctx, Deliveries(batch))
}

func count(c prometheus.Counter) int { return int(testutil.ToFloat64(c)) }

// request publishes requests for updates of the instances, and passes them to the orchestrator as one batch.
func (b *bundle) request(o *orchestrator, instances ...string) []string {
	b.t.Helper()
	operations := make([]event.Operation, len(instances))
	for i, instance := range instances {
		operations[i] = event.Operation{Type: event.Update, InstanceID: instance}
	}
	return b.requestAll(o, operations...)
}

// requestAll publishes requests, and passes them to the orchestrator as one batch.
func (b *bundle) requestAll(o *orchestrator, operations ...event.Operation) []string {
	b.t.Helper()
	ids := b.publishRequests(operations...)
	require.NoError(b.t, o.Requests(b.t.Context(), b.take(b.requests, len(operations))))
	return ids
}

// publishRequests publishes requests.
func (b *bundle) publishRequests(operations ...event.Operation) []string {
	b.t.Helper()
	ids := make([]string, len(operations))
	messages := make([]bus.Message, len(operations))
	for i, op := range operations {
		op.ID, op.Plan = uuid.Must(uuid.NewV7()).String(), event.Plan{ID: "p", Name: "p"}
		e, err := bus.New(event.TypeOperationRequested, op.ID, event.SourceBroker, op.ID, epoch, event.OperationRequested{Operation: op, RequestedAt: epoch})
		require.NoError(b.t, err)
		ids[i], messages[i] = op.ID, bus.Message{Subject: event.RequestSubject(op.Type), ID: op.ID, Event: e}
	}
	require.NoError(b.t, b.bus.Publish(b.t.Context(), messages...))
	return ids
}

// result returns a result of alpha for a command of the step One.
func result(id string, cursor int64) event.Result {
	return event.Result{
		OperationID: id, Cursor: cursor, Stage: "change", Step: "One", Worker: event.Worker{Name: "alpha", Version: "1.0.0"}, StartedAt: epoch, FinishedAt: epoch,
	}
}

// current returns a result for the command in flight.
func (b *bundle) current(id string) event.Result {
	b.t.Helper()
	row := b.row(id)
	worker, command := engine.Command(b.set[row.Operation.Type], &row.State)
	return event.Result{
		OperationID: id, Cursor: command.Cursor, Stage: command.Stage, Step: command.Step, Worker: event.Worker{Name: worker, Version: "1.0.0"},
		StartedAt: b.clock.Now(), FinishedAt: b.clock.Now(),
	}
}

func (b *bundle) resultEvent(kind event.Type, r event.Result, data any) cloudevents.Event {
	b.t.Helper()
	e, err := bus.New(kind, event.DispatchID(r.OperationID, r.Cursor, 1), event.WorkerSource(r.Worker.Name), r.OperationID, r.FinishedAt, data)
	require.NoError(b.t, err)
	return e
}

// publishResult publishes a result. The message has no id, so that a test can send duplicates.
func (b *bundle) publishResult(publisher string, kind event.Type, r event.Result, data any) {
	b.t.Helper()
	m := bus.Message{Subject: event.ResultSubject(publisher, r.Step), Event: b.resultEvent(kind, r, data)}
	require.NoError(b.t, b.bus.Publish(b.t.Context(), m))
}

// answer publishes a success for the command with a cursor; change may modify it.
func (b *bundle) answer(id string, cursor int64, change func(r *event.StepSucceeded)) {
	b.t.Helper()
	r := event.StepSucceeded{Result: result(id, cursor)}
	if change != nil {
		change(&r)
	}
	b.publishResult("alpha", event.TypeStepSucceeded, result(id, cursor), &r)
}

// deliver passes the next n results to the orchestrator as one batch.
func (b *bundle) deliver(o *orchestrator, n int) {
	b.t.Helper()
	require.NoError(b.t, o.Results(b.t.Context(), b.take(b.results, n)))
}

func (b *bundle) row(id string) *store.Row {
	b.t.Helper()
	found, err := b.store.Load(b.t.Context(), []string{id})
	if err != nil || found[id] == nil {
		b.t.Fatalf("operation %s: %v", id, err)
	}
	return found[id]
}

func (b *bundle) exec(query string, args ...any) {
	b.t.Helper()
	_, err := b.db.Exec(query, args...)
	require.NoError(b.t, err)
}

func (b *bundle) history(id string) []string {
	b.t.Helper()
	var lines []string
	require.NoError(b.t, b.db.Select(&lines, `SELECT step || ' ' || kind FROM orchestrator.history WHERE operation_id = $1 ORDER BY cursor`, id))
	return lines
}

// published waits until a command was published exactly times times.
func (b *bundle) published(id string, cursor int64, times int) {
	b.t.Helper()
	want := event.DispatchID(id, cursor, 1)
	testkit.Eventually(b.t, patience, "command "+want+" is published", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(slices.DeleteFunc(slices.Clone(b.commands), func(c string) bool { return c != want })) == times
	})
}

// inStream waits until the stream holds want messages; a work queue does not hold acknowledged ones.
func (b *bundle) inStream(s event.Stream, want uint64) {
	b.t.Helper()
	ok := func() bool {
		stream, err := b.bus.JetStream().Stream(b.t.Context(), string(s))
		require.NoError(b.t, err)
		return stream.CachedInfo().State.Msgs == want
	}
	testkit.Eventually(b.t, patience, fmt.Sprintf("stream %s holds %d messages", s, want), ok)
}
