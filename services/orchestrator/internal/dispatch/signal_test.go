package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const approved = "approval.17"

func signalOf(key, id string) event.Signal {
	return event.Signal{Key: key, Source: "/approvals", ID: id, Data: json.RawMessage(`{"by": "ann"}`)}
}

// awaits publishes the result of the command in flight, which waits for an event, and passes it to the orchestrator.
func (b *bundle) awaits(o *orchestrator, id, key string) {
	b.t.Helper()
	r := result(id, b.row(id).AwaitedCursor())
	b.publishResult("alpha", event.TypeStepRetry, r, event.StepRetry{Result: r, RetryAfter: 60, Event: &event.AwaitedEvent{Key: key}})
	b.deliver(o, 1)
}

// commandEvent returns the id of the event in the command in flight; "-" if none is in flight.
func (b *bundle) commandEvent(id string) string {
	b.t.Helper()
	row := b.row(id)
	if !row.InFlight() {
		return "-"
	}
	_, c := engine.Command(b.set[row.Operation.Type], &row.State)
	if c.Event == nil {
		return ""
	}
	return c.Event.ID
}

func (b *bundle) wantEvent(id, want string) {
	b.t.Helper()
	if got := b.commandEvent(id); got != want {
		b.t.Errorf("the command has the event %q, want %q", got, want)
	}
}

func TestSignal_WaitingOperation_ContinuesAtOnce(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.awaits(o, id, approved)
	added, err := o.Signal(t.Context(), signalOf(approved, "1"))
	require.NoError(t, err)
	if added != 1 {
		t.Errorf("%d new events, want 1", added)
	}
	b.wantEvent(id, "1")
	row := b.row(id)
	want := signalOf(approved, "1")
	want.ReceivedAt, want.Data = epoch, json.RawMessage(`{"by":"ann"}`)
	if diff := cmp.Diff(map[string]event.Signal{"One": want}, row.Events); diff != "" {
		t.Errorf("events of the operation (-want +got):\n%s", diff)
	}
	b.published(id, row.Cursor, 1)
	var data, operation *string
	require.NoError(t, b.db.QueryRow(`SELECT data::text, operation_id::text FROM orchestrator.signals`).Scan(&data, &operation))
	if data != nil || operation == nil || *operation != id {
		t.Errorf("the delivered event has the data %v and the operation %v", data, operation)
	}
}

func TestSignal_EarlyEvent_WaitsForTheStep(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	for _, n := range []string{"1", "2"} { // the command is in flight
		_, err := o.Signal(t.Context(), signalOf(approved, n))
		require.NoError(t, err)
	}
	b.wantEvent(id, "")
	b.awaits(o, id, approved)
	b.wantEvent(id, "1")
	b.awaits(o, id, approved)
	b.wantEvent(id, "2")
	b.awaits(o, id, approved)
	b.wantEvent(id, "-")
}

func TestSignal_Repetition_IsIgnored(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.awaits(o, id, approved)
	for i, want := range []int{1, 0, 0} {
		added, err := o.Signal(t.Context(), signalOf(approved, "1"))
		require.NoError(t, err)
		if added != want {
			t.Errorf("event %d: %d are new, want %d", i, added, want)
		}
	}
	b.awaits(o, id, approved)
	b.wantEvent(id, "-")
	other := signalOf(approved, "1")
	other.Source = "/others"
	_, err := o.Signal(t.Context(), other)
	require.NoError(t, err)
	b.wantEvent(id, "1")
}

func TestSignal_SharedKey_GoesToTheOldest(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	ids := b.request(o, "i-1", "i-2")
	b.awaits(o, ids[1], approved)
	b.clock.Advance(time.Second)
	b.awaits(o, ids[0], approved)
	_, err := o.Signal(t.Context(), signalOf(approved, "1"))
	require.NoError(t, err)
	b.wantEvent(ids[0], "-")
	b.wantEvent(ids[1], "1")
	_, err = o.Signal(t.Context(), signalOf(approved, "2"))
	require.NoError(t, err)
	b.wantEvent(ids[0], "2")
}

// killedStore is the store of an orchestrator that is killed before a method.
type killedStore struct {
	Store

	beforeTx bool
}

var errKilled = errors.New("killed")

func (k *killedStore) InTx(ctx context.Context, f func(tx Tx) error) error {
	if k.beforeTx {
		return errKilled
	}
	return k.Store.InTx(ctx, f)
}

func TestSignal_KilledBeforeDelivery_SweepDelivers(t *testing.T) {
	b := setup(t)
	o, other := b.orchestrator(), b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.awaits(o, id, approved)
	o.deps.Store = &killedStore{Store: o.deps.Store, beforeTx: true}
	_, err := o.Signal(t.Context(), signalOf(approved, "1"))
	require.NoError(t, err)
	b.wantEvent(id, "-")
	status, err := b.store.SweepStatus(t.Context(), time.Now(), true)
	require.NoError(t, err)
	if !status.Signalled {
		t.Fatal("the sweep does not see the event")
	}
	require.NoError(t, other.DeliverSignals(t.Context()))
	b.wantEvent(id, "1")
	status, err = b.store.SweepStatus(t.Context(), time.Now(), true)
	require.NoError(t, err)
	if status.Signalled {
		t.Error("the sweep sees the delivered event")
	}
}

func TestSignal_KilledAfterTheResult_SweepDelivers(t *testing.T) {
	b := setup(t)
	o, other := b.orchestrator(), b.orchestrator()
	id := b.request(o, "i-1")[0]
	_, err := o.Signal(t.Context(), signalOf(approved, "1"))
	require.NoError(t, err)
	o.deps.Store = &killedStore{Store: o.deps.Store, beforeTx: true}
	b.awaits(o, id, approved)
	b.wantEvent(id, "-")
	require.NoError(t, other.DeliverSignals(t.Context()))
	b.wantEvent(id, "1")
}

func TestSignal_KilledBeforePublication_SendsTheCommandAgain(t *testing.T) {
	b := setup(t)
	o, other := b.orchestrator(), b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.awaits(o, id, approved)
	o.bus.set(commandsOnly, false)
	_, err := o.Signal(t.Context(), signalOf(approved, "1"))
	require.NoError(t, err)
	b.wantEvent(id, "1")
	cursor := b.row(id).Cursor
	b.published(id, cursor, 0)
	n, err := other.AfterStart(t.Context(), epoch.Add(-time.Hour), noneHeld)
	require.NoError(t, err)
	if n == 0 {
		t.Error("no command was published again")
	}
	b.published(id, cursor, 1)
}

// The poll is due when the event comes: each is handled by another orchestrator.
func TestSignal_WithThePoll_IsDeliveredOnce(t *testing.T) {
	b := setup(t)
	o, other := b.orchestrator(), b.orchestrator()
	id := b.request(o, "i-1")[0]
	for _, n := range []string{"1", "2", "3", "4", "5"} {
		b.awaits(o, id, approved)
		if b.commandEvent(id) != "-" {
			t.Fatal("an event is left")
		}
		b.clock.Advance(time.Minute)
		var both sync.WaitGroup
		both.Go(func() {
			_, err := other.Due(t.Context(), true)
			if err != nil && !errors.Is(err, store.ErrConflict) {
				t.Error(err)
			}
		})
		both.Go(func() {
			if _, err := o.Signal(t.Context(), signalOf(approved, n)); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if b.commandEvent(id) == "" { // the poll came first
			b.awaits(o, id, approved)
		}
		if b.commandEvent(id) == "-" {
			require.NoError(t, other.DeliverSignals(t.Context()))
		}
		b.wantEvent(id, n)
	}
}

func TestSignal_TwoOrchestrators_DeliverOnce(t *testing.T) {
	b := setup(t)
	a, c := b.orchestrator(), b.orchestrator()
	var ids []string
	for range 20 {
		id := b.request(a, uuid.NewString())[0]
		b.awaits(a, id, "of."+id)
		ids = append(ids, id)
	}
	var signals []event.Signal
	for _, id := range ids {
		signal := signalOf("of."+id, "1")
		signal.ReceivedAt = epoch
		signals = append(signals, signal)
	}
	_, err := b.store.AddSignals(t.Context(), signals)
	require.NoError(t, err)
	var both sync.WaitGroup
	for _, o := range []*orchestrator{a, c} {
		both.Go(func() { _ = o.DeliverSignals(t.Context()) })
	}
	both.Wait()
	require.NoError(t, a.DeliverSignals(t.Context()))
	for _, id := range ids {
		b.wantEvent(id, "1")
		received := 0
		for _, line := range b.history(id) {
			if line == "0 "+string(engine.KindEventReceived) {
				received++
			}
		}
		if received != 1 {
			t.Errorf("operation %s has received the event %d times: %v", id, received, b.history(id))
		}
	}
}

func TestSignal_HeldStep_GetsItAtTheRelease(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.awaits(o, id, approved)
	board := b.holds([]hold.Scope{{Step: "One"}}, o)
	_, err := o.Signal(t.Context(), signalOf(approved, "1"))
	require.NoError(t, err)
	b.held(id, true)
	board.set()
	require.NoError(t, o.ReleaseHeld(t.Context()))
	b.wantEvent(id, "1")
}

// A message on keb.signal is a CloudEvent of any type.
func TestSignals_Messages_AreStoredBeforeTheyAreAcknowledged(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	deliveries := make(chan *bus.Delivery, 100)
	b.consume(event.SignalsConsumer(), deliveries)
	id := b.request(o, "i-1")[0]
	b.awaits(o, id, approved)
	publish := func(subject, eventID string, data any) {
		e, err := bus.New("com.example.approved", eventID, "/approvals", "", epoch, data)
		require.NoError(t, err)
		require.NoError(t, b.bus.Publish(t.Context(), bus.Message{Subject: subject, Event: e}))
	}
	publish(event.SignalSubject(approved), "1", map[string]string{"by": "ann"})
	publish(event.SignalSubject(approved), "1", map[string]string{"by": "ann"})
	publish(event.SignalSubject("no.@.key"), "2", nil)
	publish(event.SignalSubject(approved), "3", string(make([]byte, 1<<16)))
	batch := b.take(deliveries, 4)
	o.deps.Store = failingSignals{o.deps.Store, errors.New("disk full")}
	if err := o.Signals(t.Context(), Deliveries(batch[:1])); err == nil {
		t.Error("an event that was not stored is reported as stored")
	}
	o.deps.Store = o.deps.Store.(failingSignals).Store
	again := b.take(deliveries, 1)
	require.NoError(t, o.Signals(t.Context(), Deliveries(append(again, batch[1:]...))))
	b.wantEvent(id, "1")
	b.inStream(event.StreamSignals, 0)
	testkit.Eventually(t, patience, "two dead letters", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.dead) == 2
	})
}

// An event of a failed batch that cannot be stored is reported, also if the next one is stored.
func TestSignals_OneCannotBeStored_IsReported(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	deliveries := make(chan *bus.Delivery, 100)
	b.consume(event.SignalsConsumer(), deliveries)
	for _, id := range []string{"1", "2"} {
		e, err := bus.New("com.example.approved", id, "/approvals", "", epoch, nil)
		require.NoError(t, err)
		require.NoError(t, b.bus.Publish(t.Context(), bus.Message{Subject: event.SignalSubject(approved), Event: e}))
	}
	o.deps.Store = firstFails{o.deps.Store}
	require.ErrorContains(t, o.Signals(t.Context(), Deliveries(b.take(deliveries, 2))), "disk full")
	b.inStream(event.StreamSignals, 1)
}

// firstFails does not store the event 1.
type firstFails struct{ Store }

func (f firstFails) AddSignals(ctx context.Context, signals []event.Signal) (int, error) {
	if signals[0].ID == "1" {
		return 0, errors.New("disk full")
	}
	return f.Store.AddSignals(ctx, signals)
}

type failingSignals struct {
	Store

	err error
}

func (f failingSignals) AddSignals(context.Context, []event.Signal) (int, error) { return 0, f.err }
