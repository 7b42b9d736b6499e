package bus

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

var processes = fstest.MapFS{"update.yaml": {Data: []byte(`
operation: update
timeout: 1h
stages:
  - name: change
    steps:
      - {name: First, worker: avs, execution: 10m, retry: {every: 10s, timeout: 10m}}
      - {name: Second, worker: edp, execution: 10m, retry: {every: 10s, timeout: 10m}}
      - {name: Third, worker: avs, execution: 10m, retry: {every: 10s, timeout: 10m}}
`)}}

// system is an orchestrator and two workers, each with its user. A step waits while it is held.
type system struct {
	*installation
	broker *bus.Bus
	held   chan struct{} // closed: no step waits

	mu    sync.Mutex
	holds map[string]int64 // operation -> cursor of the second step, which waits
}

func (s *system) step(name string) worker.Step { return step{name: name, s: s} }

type step struct {
	name string
	s    *system
}

func (st step) Name() string { return st.name }

func (st step) Run(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	if err := op.SaveDetails(map[string]string{st.name: "true"}); err != nil {
		return op, 0, err
	}
	if st.name == "Second" {
		st.s.mu.Lock()
		st.s.holds[op.ID]++
		st.s.mu.Unlock()
		select {
		case <-st.s.held:
		case <-ctx.Done():
			return op, 0, ctx.Err()
		}
	}
	return op, 0, nil
}

func start(t *testing.T) *system {
	t.Helper()
	in := install(t, slog.New(slog.DiscardHandler))
	s := &system{installation: in, broker: in.Connect(event.UserBroker), held: make(chan struct{}), holds: map[string]int64{}}
	in.StartWorker(worker.Config{Name: "avs", Version: "1.0.0"}, s.step("First"), s.step("Third"))
	in.StartWorker(worker.Config{Name: "edp", Version: "1.0.0"}, s.step("Second"))
	in.Orchestrator.Processes = processes
	in.StartOrchestrator("")
	return s
}

// request publishes n requests, each for a different instance.
func (s *system) request(t *testing.T, n int) []string {
	t.Helper()
	var ids []string
	for range n {
		op := event.Operation{ID: uuid.NewString(), Type: event.Update, InstanceID: uuid.NewString(), Plan: event.Plan{ID: "p", Name: "p"}}
		e, err := bus.New(event.TypeOperationRequested, op.ID, event.SourceBroker, op.ID, time.Now(), event.OperationRequested{Operation: op, RequestedAt: time.Now()})
		require.NoError(t, err)
		require.NoError(t, s.broker.Publish(t.Context(), bus.Message{Subject: event.RequestSubject(op.Type), ID: op.ID, Event: e}))
		ids = append(ids, op.ID)
	}
	return ids
}

// all returns the status of all given operations.
func (s *system) all(t *testing.T, ids []string) map[string]event.OperationStatus {
	t.Helper()
	found := s.status(t, ids)
	if len(found) != len(ids) {
		t.Fatalf("the orchestrator returns %d of %d operations", len(found), len(ids))
	}
	return found
}

// status returns the status of the operations that the orchestrator has so far.
func (s *system) status(t *testing.T, ids []string) map[string]event.OperationStatus {
	t.Helper()
	var answer event.OperationsAnswer
	if err := s.broker.AskWithTimeout(t.Context(), waitLimit, event.AskOperations, event.OperationsRequest{IDs: ids}, &answer); err != nil {
		t.Logf("ask: %v", err) // the orchestrator has not started yet
		return nil
	}
	found := map[string]event.OperationStatus{}
	for _, o := range answer.Operations {
		found[o.OperationID] = o
	}
	return found
}

// atSecond waits until the second step of each operation is executing.
func (s *system) atSecond(t *testing.T, ids []string) {
	t.Helper()
	testkit.Eventually(t, waitLimit, "all operations stand at the step of edp", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, id := range ids {
			if s.holds[id] == 0 {
				return false
			}
		}
		return true
	})
}

func (s *system) succeed(t *testing.T, ids []string) {
	t.Helper()
	testkit.Eventually(t, 2*waitLimit, "all operations succeed", func() bool {
		found := s.status(t, ids)
		for _, id := range ids {
			if found[id].State != event.Succeeded {
				return false
			}
		}
		return true
	})
	for id, o := range s.all(t, ids) {
		if string(o.Details) != `{"avs":{"First":"true","Third":"true"},"edp":{"Second":"true"}}` {
			t.Errorf("operation %s ends with the details %s", id, o.Details)
		}
	}
}

// forgery returns a result forged by a worker, for the cursor of an operation at the step of another worker.
func forgery(t *testing.T, as, named, id string, cursor int64, make func(event.Result) (event.Type, any)) *nats.Msg {
	t.Helper()
	r := event.Result{
		OperationID: id, Cursor: cursor, Stage: "change", Step: "Second", Worker: event.Worker{Name: named},
		Details: json.RawMessage(`{"forged":true}`), StartedAt: time.Now(), FinishedAt: time.Now(),
	}
	kind, payload := make(r)
	e, err := bus.New(kind, event.DispatchID(id, cursor, 1), event.WorkerSource(named), id, time.Now(), payload)
	require.NoError(t, err)
	h, data, err := bus.Encode(&e)
	require.NoError(t, err)
	return &nats.Msg{Subject: event.ResultSubject(as, "Second"), Header: h, Data: data}
}

var outcomes = []func(event.Result) (event.Type, any){
	func(r event.Result) (event.Type, any) { return event.TypeStepSucceeded, event.StepSucceeded{Result: r} },
	func(r event.Result) (event.Type, any) {
		return event.TypeStepFailed, event.StepFailed{Result: r, Error: event.Error{Message: "forged"}}
	},
	func(r event.Result) (event.Type, any) { return event.TypeStepSkipped, event.StepSkipped{Result: r} },
	func(r event.Result) (event.Type, any) {
		return event.TypeStepRetry, event.StepRetry{Result: r, RetryAfter: 3600}
	},
	func(r event.Result) (event.Type, any) { return event.TypeStageLost, event.StageLost{Result: r} },
}

func TestBus_ForgedResult_IsIgnored(t *testing.T) { //nolint:paralleltest // the server reads its passwords from the environment
	s := start(t)
	ids := s.request(t, 5)
	s.atSecond(t, ids)
	before := s.all(t, ids)
	forger := s.attack(t, "worker-avs") // it received a command of each operation, and will receive another one
	tries := 0
	for _, id := range ids {
		for _, outcome := range outcomes {
			for _, named := range []string{"avs", "edp"} {
				for cursor := before[id].Cursor - 1; cursor <= before[id].Cursor+2; cursor++ {
					m := forgery(t, "avs", named, id, cursor, outcome)
					if cursor == before[id].Cursor && named == "avs" {
						// Use the id of the future result, so that the stream treats that one as a duplicate.
						m.Header.Set(nats.MsgIdHdr, event.DispatchID(id, cursor, 1))
					}
					_, err := forger.nc.RequestMsg(m, waitLimit)
					require.NoError(t, err)
					tries++
				}
			}
		}
		// It cannot publish as another worker.
		m := forgery(t, "edp", "edp", id, before[id].Cursor, outcomes[0])
		require.NoError(t, forger.nc.PublishMsg(m))
	}
	forger.settled(t)
	// The server treats the real result as a duplicate of a forged one until it forgets the forged id. It forgets ids in their order, and
	// this is the last one.
	last := forgery(t, "avs", "avs", ids[0], before[ids[0]].Cursor, outcomes[0])
	last.Header.Set(nats.MsgIdHdr, "the last of all")
	if forger.isDuplicate(t, last) {
		t.Fatal("the first message with an id is a duplicate")
	}
	if !forger.isRefused("publish", event.ResultSubject("edp", "Second")) {
		t.Error("a worker can publish as another worker")
	}
	testkit.Eventually(t, waitLimit, "the forged results are processed", func() bool {
		c, err := s.Bus.JetStream().Consumer(t.Context(), string(event.StreamResults), event.ResultsConsumer().Name)
		return err == nil && c.CachedInfo().NumPending == 0 && c.CachedInfo().NumAckPending == 0
	})
	for id, o := range s.all(t, ids) {
		if o.State != event.InProgress || o.Cursor != before[id].Cursor || *o.Position != *before[id].Position || o.Worker != "edp" {
			t.Errorf("operation %s was at %+v, and is at %+v", id, before[id], o)
		}
	}
	testkit.Eventually(t, waitLimit, "the server forgets the ids", func() bool { return !forger.isDuplicate(t, last) })
	close(s.held)
	s.succeed(t, ids)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.holds {
		if n != 1 {
			t.Errorf("operation %s: the step of edp was executed %d times", id, n)
		}
	}
	t.Logf("bus: %d forged results, none had an effect; %d operations continued and succeeded", tries, len(ids))
}

// isDuplicate publishes to a stream, and reports whether the stream drops the message as a duplicate.
func (a *attacker) isDuplicate(t *testing.T, m *nats.Msg) bool {
	t.Helper()
	answer, err := a.nc.RequestMsg(m, waitLimit)
	require.NoError(t, err)
	var ack jetstream.PubAck
	if err := json.Unmarshal(answer.Data, &ack); err != nil || ack.Sequence == 0 {
		t.Fatalf("publish: %s, %v", answer.Data, err)
	}
	return ack.Duplicate
}

// TestBus_Worker_QueriesOnlyItsCommands: a worker that could query as another worker would learn its commands. A worker that could not query
// its own commands would never execute redelivered ones.
func TestBus_Worker_QueriesOnlyItsCommands(t *testing.T) { //nolint:paralleltest // the server reads its passwords from the environment
	s := start(t)
	ids := s.request(t, 1)
	s.atSecond(t, ids) // the step of edp
	command := event.CommandRef{OperationID: ids[0], Cursor: s.all(t, ids)[ids[0]].Cursor}
	question := event.CurrentRequest{Commands: []event.CommandRef{command}}
	for user, want := range map[string][]event.CommandRef{"worker-edp": {command}, "worker-avs": {}, event.UserBroker: {}} {
		var answer event.CurrentAnswer
		subject := event.AskCurrentAs(strings.TrimPrefix(user, "worker-"))
		if err := s.Connect(user).AskWithTimeout(t.Context(), waitLimit, subject, question, &answer); err != nil {
			t.Errorf("%s: %v", user, err)
		}
		if diff := cmp.Diff(want, answer.Current); diff != "" {
			t.Errorf("%s receives (-want +got):\n%s", user, diff)
		}
	}
	body, err := json.Marshal(question)
	require.NoError(t, err)
	for _, user := range []string{"worker-avs", event.UserBroker, event.UserMonitor} {
		a := s.attack(t, user)
		answers, err := a.nc.SubscribeSync(event.InboxPrefix(user) + ".x")
		require.NoError(t, err)
		require.NoError(t, a.nc.PublishRequest(event.AskCurrentAs("edp"), event.InboxPrefix(user)+".x", body))
		a.settled(t)
		if n, _, err := answers.Pending(); n > 0 || err != nil || !a.isRefused("publish", event.AskCurrentAs("edp")) {
			t.Errorf("%s queries as edp and gets %d answers (%v)", user, n, err)
		}
	}
	close(s.held)
	s.succeed(t, ids)
}

func TestBus_CancelNotice_ReachesOnlyReplicasOfWorker(t *testing.T) { //nolint:paralleltest // the server reads its passwords from the environment
	s := start(t)
	subject := event.CancelSubject("avs")
	var replicas []*nats.Subscription
	for range 2 {
		replica := s.attack(t, "worker-avs")
		sub, err := replica.nc.SubscribeSync(subject)
		require.NoError(t, err)
		replica.settled(t)
		replicas = append(replicas, sub)
	}
	other := s.attack(t, "worker-edp")
	_, err := other.nc.SubscribeSync(subject)
	require.NoError(t, err)
	require.NoError(t, other.nc.Publish(subject, []byte("{}")))
	other.settled(t)
	for _, verb := range []string{"publish", "subscription"} {
		if !other.isRefused(verb, subject) {
			t.Errorf("a %s of another worker on %s is permitted", verb, subject)
		}
	}
	sent := event.CancelNotice{CommandRef: event.CommandRef{OperationID: "o", Cursor: 7}, Reason: "cancelled by alice"}
	require.NoError(t, s.Connect(event.UserOrchestrator).Notify(subject, sent))
	for _, sub := range replicas {
		m, err := sub.NextMsg(waitLimit)
		require.NoError(t, err)
		var got event.CancelNotice
		require.NoError(t, json.Unmarshal(m.Data, &got))
		if got != sent {
			t.Errorf("notice %+v, want %+v", got, sent)
		}
		if n, _, err := sub.Pending(); n > 0 || err != nil {
			t.Errorf("%d more notices (%v), want none", n, err)
		}
	}
	close(s.held)
}

func TestBus_FloodOfOneWorker_OthersContinue(t *testing.T) { //nolint:paralleltest // the server reads its passwords from the environment
	testkit.Suite(t, "bus")
	const messages, operations = 20_000, 50
	s := start(t)
	close(s.held)
	warm := s.request(t, operations)
	s.succeed(t, warm)
	begin := time.Now()
	s.succeed(t, s.request(t, operations))
	calm := time.Since(begin)

	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	heapBefore := memory.HeapAlloc
	flooder := s.attack(t, "worker-lms")
	large := strings.Repeat("x", 512<<10)
	sent := make(chan error, 1)
	begin = time.Now()
	go func() {
		sent <- func() error {
			for i := range messages {
				m := &nats.Msg{Subject: "keb.result.lms.S", Data: []byte("{}"), Header: nats.Header{}}
				switch i % 4 {
				case 1: // valid, with an existing operation
					m = forgery(t, "lms", "lms", warm[i%len(warm)], int64(i), outcomes[0])
				case 2:
					m.Subject = "keb.dead.KEB_COMMANDS"
				case 3:
					m = forgery(t, "lms", "lms", uuid.NewString(), 1, outcomes[0])
				}
				if i%500 == 0 {
					m.Data = []byte(large)
				}
				if err := flooder.nc.PublishMsg(m); err != nil {
					return err
				}
			}
			return flooder.nc.FlushTimeout(waitLimit)
		}()
	}()
	s.succeed(t, s.request(t, operations))
	flooded := time.Since(begin)
	require.NoError(t, <-sent)
	testkit.Eventually(t, 2*waitLimit, "the flood is processed", func() bool {
		c, err := s.Bus.JetStream().Consumer(t.Context(), string(event.StreamResults), event.ResultsConsumer().Name)
		return err == nil && c.CachedInfo().NumPending == 0 && c.CachedInfo().NumAckPending == 0
	})
	drained := time.Since(begin)
	runtime.GC()
	runtime.ReadMemStats(&memory)
	dead, err := s.Bus.JetStream().Stream(t.Context(), string(event.StreamDead))
	require.NoError(t, err)
	if got, limit := dead.CachedInfo().State.Msgs, uint64(2*10_000); got > limit {
		t.Errorf("%d dead letters are kept, at most %d may be", got, limit)
	}
	if grown := int64(memory.HeapAlloc) - int64(heapBefore); grown > 128<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
	t.Logf("bus: %d operations take %v; while one worker floods with %d messages %v; all are rejected after %v; %d dead letters; heap %+d MiB",
		operations, calm.Round(time.Millisecond), messages, flooded.Round(time.Millisecond), drained.Round(time.Millisecond),
		dead.CachedInfo().State.Msgs, (int64(memory.HeapAlloc)-int64(heapBefore))>>20)
}
