package dispatch

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
)

const holdID = "0193a3c5-0000-7000-8000-00000000000a"

// board is a set of holds that a test changes.
type board struct {
	mu    sync.Mutex
	holds []hold.Hold
	// matched is called before each answer.
	matched func()
}

func (b *board) set(scopes ...hold.Scope) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds = nil
	for i, s := range scopes {
		b.holds = append(b.holds, hold.Hold{ID: holdID[:len(holdID)-1] + string(rune('a'+i)), Scope: s})
	}
}

func (b *board) Match(op *event.Operation, next *process.Step) string {
	if b.matched != nil {
		b.matched()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.holds {
		if b.holds[i].Scope.Matches(op, next) {
			return b.holds[i].ID
		}
	}
	return ""
}

func (b *board) Active() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := []string{}
	for i := range b.holds {
		ids = append(ids, b.holds[i].ID)
	}
	return ids
}

// holds gives orchestrators their holds.
func (b *bundle) holds(scopes []hold.Scope, orchestrators ...*orchestrator) *board {
	board := &board{}
	board.set(scopes...)
	for _, o := range orchestrators {
		o.deps.Holds = board
	}
	return board
}

// sent returns how many commands of an operation are on the bus.
func (b *bundle) sent(id string) int {
	b.t.Helper()
	require.NoError(b.t, b.bus.NATS().Flush())
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, c := range b.commands {
		if len(c) > len(id) && c[:len(id)] == id {
			n++
		}
	}
	return n
}

func (b *bundle) held(id string, want bool) {
	b.t.Helper()
	if row := b.row(id); row.Held() != want || row.Held() && (row.InFlight() || row.Waiting()) {
		b.t.Errorf("operation %s is %s and held: %t, in flight: %t, waiting: %t; want held: %t",
			id, row.Status, row.Held(), row.InFlight(), row.Waiting(), want)
	}
}

func TestHold_NewOperation_StaysPendingUntilTheRelease(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	board := b.holds([]hold.Scope{{Plan: "p"}}, o)
	ids := b.request(o, "i-1", "i-1")
	b.states(map[string]event.OperationState{ids[0]: event.Pending, ids[1]: event.Pending})
	b.held(ids[0], true)
	b.held(ids[1], false) // it waits for its instance
	require.NoError(t, o.Admit(t.Context()))
	require.NoError(t, o.ReleaseHeld(t.Context()))
	b.held(ids[0], true)
	board.set()
	require.NoError(t, o.ReleaseHeld(t.Context()))
	require.NoError(t, o.Admit(t.Context()))
	b.states(map[string]event.OperationState{ids[0]: event.InProgress, ids[1]: event.Pending})
	b.published(ids[0], b.row(ids[0]).Cursor, 1)
}

func TestHold_ManyHeld_DoNotBlockOthers(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	o.limit(event.Update, 2)
	b.holds([]hold.Scope{{Instance: "i-1"}, {Instance: "i-2"}}, o)
	ids := b.request(o, "i-1", "i-2", "i-3")
	require.NoError(t, o.Admit(t.Context()))
	b.held(ids[0], true)
	b.held(ids[1], true)
	b.states(map[string]event.OperationState{ids[2]: event.InProgress})
}

func TestHold_ResultOfEarlierStep_HoldsTheNextOne(t *testing.T) {
	b := setup(t)
	o, other := b.orchestrator(), b.orchestrator()
	board := b.holds([]hold.Scope{{Step: "Two"}}, o, other)
	id := b.request(o, "i-1")[0]
	b.answer(id, b.row(id).Cursor, nil)
	b.deliver(o, 1)
	b.held(id, true)
	cursor := b.row(id).Cursor
	b.clock.Advance(2 * time.Hour)
	for _, one := range []*orchestrator{o, other} { // nothing but the release continues it
		_, err := one.Due(t.Context(), true)
		require.NoError(t, err)
		_, err = one.AfterStart(t.Context(), epoch, noneHeld)
		require.NoError(t, err)
		_, _, err = one.AfterLoss(t.Context(), b.clock.Now(), false, noneHeld)
		require.NoError(t, err)
		require.NoError(t, one.ReleaseHeld(t.Context()))
	}
	b.held(id, true)
	if n := b.sent(id); n != 1 {
		t.Errorf("%d commands were sent, want 1", n)
	}
	board.set()
	require.NoError(t, other.ReleaseHeld(t.Context()))
	b.held(id, false)
	b.published(id, cursor, 1)
	if row := b.row(id); !row.Deadline.Equal(epoch.Add(3 * time.Hour)) {
		t.Errorf("deadline %s, want it two hours later", row.Deadline)
	}
}

func TestHold_WaitingOperation_IsHeldWhenItIsDue(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.requestAll(o, event.Operation{Type: event.Provision, InstanceID: "i-1"})[0]
	b.waitForRetry(o, id)
	b.holds([]hold.Scope{{Worker: "alpha", Type: event.Provision}}, o)
	b.held(id, false)
	b.clock.Advance(time.Minute)
	_, err := o.Due(t.Context(), true)
	require.NoError(t, err)
	b.held(id, true)
	if row := b.row(id); row.Condition != "failing" && row.Condition != "polling" {
		t.Errorf("condition %q is lost", row.Condition)
	}
}

func TestHold_UnansweredCommand_IsNotSentAgain(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.published(id, b.row(id).Cursor, 1)
	cursor := b.row(id).Cursor
	b.holds([]hold.Scope{{Operation: id}}, o)
	b.clock.Advance(time.Minute)
	_, err := o.Due(t.Context(), true)
	require.NoError(t, err)
	b.held(id, true)
	b.answer(id, cursor, nil) // the late result of a slow worker counts
	b.deliver(o, 1)
	if row := b.row(id); row.Step != 1 || !row.Held() {
		t.Errorf("step %d, held %t: want the next step held", row.Step, row.Held())
	}
	if n := b.sent(id); n != 1 {
		t.Errorf("%d commands were sent, want 1", n)
	}
}

func TestHold_SetBetweenCommitAndPublication_HoldsTheCommand(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	board := b.holds(nil, o)
	asked := 0
	board.matched = func() {
		if asked++; asked == 3 { // after those for the start and for the decision
			board.set(hold.Scope{Plan: "p"})
		}
	}
	id := b.request(o, "i-1")[0]
	b.held(id, true)
	if n := b.sent(id); n != 0 {
		t.Errorf("%d commands were sent, want none", n)
	}
	board.set()
	require.NoError(t, o.ReleaseHeld(t.Context()))
	b.published(id, b.row(id).Cursor, 1)
}

func TestHold_UnconfirmedCommand_WaitsInTheOutbox(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	board := b.holds(nil, o)
	o.bus.set(commandsOnly, false)
	ids := b.publishRequests(event.Operation{Type: event.Update, InstanceID: "i-1"})
	require.Error(t, o.accept(t.Context(), b.incoming(o, 1)))
	o.bus.set(nil, false)
	board.set(hold.Scope{Plan: "p"})
	for range 2 {
		require.NoError(t, o.Drain(t.Context()))
	}
	if n := b.sent(ids[0]); n != 0 {
		t.Errorf("%d commands were sent, want none", n)
	}
	board.set()
	require.NoError(t, o.Drain(t.Context()))
	b.published(ids[0], b.row(ids[0]).Cursor, 1)
}

// incoming returns the next n requests, decoded.
func (b *bundle) incoming(o *orchestrator, n int) []incoming {
	b.t.Helper()
	var requests []incoming
	for _, d := range b.take(b.requests, n) {
		r, err := decodeRequest(message(d))
		require.NoError(b.t, err)
		requests = append(requests, incoming{delivery: d, request: r, process: o.deps.Definitions.Current(r.Operation.Type)})
	}
	return requests
}

func TestHold_TwoHolds_BothMustBeReleased(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	board := b.holds([]hold.Scope{{Plan: "other"}, {Plan: "p"}, {Instance: "i-1"}}, o)
	id := b.request(o, "i-1")[0]
	first := b.row(id).HoldID
	board.mu.Lock()
	board.holds = slices.Delete(board.holds, 1, 2)
	board.mu.Unlock()
	require.NoError(t, o.ReleaseHeld(t.Context()))
	if now := b.row(id).HoldID; now == first || now == "" {
		t.Errorf("hold %q after %q, want the other hold", now, first)
	}
	board.set()
	require.NoError(t, o.ReleaseHeld(t.Context()))
	b.held(id, false)
}

func TestHold_CancelAndSkip_Work(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	b.holds([]hold.Scope{{Step: "One"}}, o)
	ids := b.request(o, "i-1", "i-2")
	b.held(ids[0], true)
	require.NoError(t, o.Act(t.Context(), ids[0], engine.SkipStep{Step: "One", By: "me"}))
	require.NoError(t, o.Act(t.Context(), ids[1], engine.Cancel{Reason: "me"}))
	b.states(map[string]event.OperationState{ids[0]: event.InProgress, ids[1]: event.Cancelled})
	b.held(ids[0], false)
	b.held(ids[1], false)
}

func TestHold_Deprovisioning_PreemptsHeldOperations(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	b.holds([]hold.Scope{{Type: event.Provision}}, o)
	ids := b.requestAll(o, event.Operation{Type: event.Provision, InstanceID: "i-1"})
	b.held(ids[0], true)
	removal := b.requestAll(o, event.Operation{Type: event.Deprovision, InstanceID: "i-1"})
	b.states(map[string]event.OperationState{ids[0]: event.Cancelled, removal[0]: event.InProgress})
}

// A hold may contain thousands of operations, and sweeps run hundreds of times a second.
func TestReleaseHeld_HoldsUnchanged_ReadsOncePerSecond(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	board := b.holds([]hold.Scope{{Plan: "p"}}, o)
	id := b.request(o, "i-1")[0]
	reads := 0
	o.deps.Store = &countingStore{Store: o.deps.Store, after: func(int) { reads++ }}
	release := func(want int) {
		t.Helper()
		reads = 0
		for range 10 {
			require.NoError(t, o.ReleaseHeld(t.Context()))
		}
		if reads != want {
			t.Errorf("the held operations are read %d times, want %d", reads, want)
		}
	}
	release(1)
	release(0)
	b.clock.Advance(releaseEvery)
	release(1)
	b.held(id, true)
	board.set()
	release(2) // one finds the operation, the next one none
	b.held(id, false)
}
