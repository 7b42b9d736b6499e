package dispatch

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// unpublished returns a due operation that continued while the bus rejected commands.
func unpublished(t *testing.T) (*bundle, *orchestrator, string) {
	t.Helper()
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.waitForRetry(o, id)
	b.clock.Advance(time.Minute)
	o.bus.set(commandsOnly, false)
	if n, err := o.Due(t.Context(), true); err == nil || !b.row(id).InFlight() {
		t.Fatalf("%d operations woken, error %v; want one with an unpublished command", n, err)
	}
	return b, o, id
}

func TestOutbox_BusReturns_PublishesDueCommands(t *testing.T) {
	b, o, id := unpublished(t)
	if err := o.Drain(t.Context()); err == nil {
		t.Error("no error while the bus rejects the command")
	}
	o.bus.set(nil, false)
	before := b.row(id)
	for range 2 {
		require.NoError(t, o.Drain(t.Context()))
	}
	b.published(id, before.Cursor, 1)
	if row := b.row(id); row.Version != before.Version {
		t.Errorf("the row has changed to version %d", row.Version)
	}
}

func TestOutbox_OperationMovedOn_DropsOldCommand(t *testing.T) {
	b, o, id := unpublished(t)
	o.bus.set(nil, false)
	cursor := b.row(id).Cursor
	require.NoError(t, o.Act(t.Context(), id, engine.SkipStep{Step: "One", By: "me"}))
	require.NoError(t, o.Drain(t.Context()))
	last := b.request(o, "i-2")[0] // its command arrives after all earlier ones
	b.published(last, b.row(last).Cursor, 1)
	b.published(id, cursor, 0)
	b.published(id, b.row(id).Cursor, 1) // Two
}

func TestOutbox_SendWindowOver_DropsCommand(t *testing.T) {
	b, o, id := unpublished(t)
	o.bus.set(nil, false)
	if at := o.Lapsed(); !at.IsZero() {
		t.Errorf("a command lapsed at %s, want none", at)
	}
	b.clock.Advance(event.DuplicateWindow + time.Second)
	require.NoError(t, o.Drain(t.Context()))
	if at := o.Lapsed(); !at.Equal(b.clock.Now()) {
		t.Errorf("a command lapsed at %s, want %s", at, b.clock.Now())
	}
	last := b.request(o, "i-2")[0]
	b.published(last, b.row(last).Cursor, 1)
	b.published(id, b.row(id).Cursor, 0)
}

// Each page of an outbox can take several seconds.
func TestOutbox_SendWindowEndsBetweenPages_DropsTheRest(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	o.dueBatch = 3
	o.bus.set(commandsOnly, false)
	var operations []event.Operation
	for _, instance := range instances(4) {
		operations = append(operations, event.Operation{Type: event.Update, InstanceID: instance})
	}
	ids := b.publishRequests(operations...)
	require.Error(t, o.accept(t.Context(), b.incoming(o, 4)))
	b.clock.Advance(sendWithin)
	o.bus.set(func(string) bool { b.clock.Advance(pageTimeout); return false }, false)
	require.NoError(t, o.Drain(t.Context()))
	b.inStream(event.StreamCommands, 3)
	slices.Sort(ids)
	b.published(ids[3], b.row(ids[3]).Cursor, 0)
	if at := o.Lapsed(); at.IsZero() {
		t.Error("no command has lapsed")
	}
}

func TestOutbox_AdmittedWhileBusAway_IsPublished(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	b.busy("i-1")
	id := b.request(o, "i-1")[0]
	b.free()
	o.bus.set(commandsOnly, false)
	if err := o.Admit(t.Context()); err == nil || !b.row(id).InFlight() {
		t.Fatalf("error %v; want an operation that started and whose command is not published", err)
	}
	o.bus.set(nil, false)
	require.NoError(t, o.Drain(t.Context()))
	b.published(id, b.row(id).Cursor, 1)
}

func TestDispatcher_ContextEnds_FinishesStartedWork(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.waitForRetry(o, id)
	b.clock.Advance(time.Minute)
	ctx, stop := context.WithCancel(t.Context())
	o.bus.set(func(string) bool { stop(); return false }, false)
	if n, err := o.Due(ctx, true); err != nil || n != 1 {
		t.Fatalf("%d operations woken, error %v; want 1", n, err)
	}
	b.published(id, b.row(id).Cursor, 1)
	if ctx.Err() == nil {
		t.Error("the context did not end during the call")
	}
	if _, err := o.Due(ctx, true); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want that no work starts after the end of the context", err)
	}
}

func TestDue_WithoutUnanswered_LeavesCommandsInFlight(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	b.request(o, "i-1")
	b.clock.Advance(time.Minute)
	for want, unanswered := range []bool{false, true} {
		if n, err := o.Due(t.Context(), unanswered); n != want || err != nil {
			t.Errorf("%d operations woken, error %v; want %d", n, err, want)
		}
	}
}

func TestDue_CommitAnswerLost_SendsCommand(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.requestAll(o, event.Operation{Type: event.Provision, InstanceID: "i-1"})[0]
	b.waitForRetry(o, id)
	b.clock.Advance(time.Minute)
	b.loseAnswer(o)
	if _, err := o.Due(t.Context(), true); err == nil || !b.row(id).InFlight() {
		t.Fatalf("error %v; want an error and a committed command", err)
	}
	require.NoError(t, o.Drain(t.Context()))
	b.published(id, b.row(id).Cursor, 1)
}

// The request that is redelivered publishes only the command of its own operation.
func TestRequests_CommitAnswerLost_SendsCommandOfPreempted(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.requestAll(o, event.Operation{Type: event.UpgradeKyma, InstanceID: "i-1"})[0]
	b.waitForRetry(o, id)
	b.publishRequests(event.Operation{Type: event.Deprovision, InstanceID: "i-1"})
	requests := b.incoming(o, 1)
	b.loseAnswer(o)
	if err := o.accept(t.Context(), requests); err == nil || !b.row(id).InFlight() {
		t.Fatalf("error %v; want an error and a committed command of the finally stage", err)
	}
	require.NoError(t, o.Drain(t.Context()))
	b.published(id, b.row(id).Cursor, 1)
}

func TestOutbox_TransitionRolledBack_KeepsTheCommand(t *testing.T) {
	b, o, id := unpublished(t)
	rejected := errors.New("rejected")
	_, err := o.decideAll(t.Context(), []string{id}, engine.SkipStep{Step: "One", By: "me"}, func(Tx, map[string]error) error { return rejected })
	require.ErrorIs(t, err, rejected)
	o.bus.set(nil, false)
	require.NoError(t, o.Drain(t.Context()))
	b.published(id, b.row(id).Cursor, 1)
}
