package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

// changingLimits are limits that a test changes.
type changingLimits struct {
	mu      sync.Mutex
	set     *limit.Set
	version int64
}

func (f *changingLimits) Current() (*limit.Set, int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set, f.version
}

func (f *changingLimits) apply(t testing.TB, document string) {
	t.Helper()
	set, err := limit.Parse([]byte(document))
	require.NoError(t, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set, f.version = set, f.version+1
}

// limits gives orchestrators their limits.
func (b *bundle) limits(document string, orchestrators ...*orchestrator) *changingLimits {
	b.t.Helper()
	limits := &changingLimits{}
	limits.apply(b.t, document)
	for _, o := range orchestrators {
		o.deps.Limits = limits
	}
	return limits
}

// grant runs rounds of an orchestrator until nothing wakes it.
func (b *bundle) grant(o *orchestrator) (next time.Time) {
	b.t.Helper()
	for {
		next, err := o.Grant(b.t.Context())
		require.NoError(b.t, err)
		select {
		case <-o.granter.wake:
		default:
			return next
		}
	}
}

// inFlight returns the operations with a command in flight, in the order of ids.
func (b *bundle) inFlight(ids []string) (found []string) {
	b.t.Helper()
	for _, id := range ids {
		if b.row(id).InFlight() {
			found = append(found, id)
		}
	}
	return found
}

func (b *bundle) wantInFlight(ids []string, want int) []string {
	b.t.Helper()
	found := b.inFlight(ids)
	if len(found) != want {
		b.t.Errorf("%d commands are in flight, want %d", len(found), want)
	}
	return found
}

// succeed answers commands in flight, and passes the results to the orchestrator as one batch.
func (b *bundle) succeed(o *orchestrator, ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		b.answer(id, b.row(id).AwaitedCursor(), nil)
	}
	b.deliver(o, len(ids))
}

func instances(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("i-%02d", i)
	}
	return names
}

// tenant returns an operation of a global account.
func tenant(t event.OperationType, account, instance string) event.Operation {
	return event.Operation{Type: t, InstanceID: instance, Context: event.Context{GlobalAccountID: account}}
}

const twoAlpha = "limits: [{name: alpha, scope: {worker: alpha}, commands: 2}]"

func TestLimit_TwoOrchestrators_NeverExceedIt(t *testing.T) {
	b := setup(t)
	first, second := b.orchestrator(), b.orchestrator()
	b.limits(twoAlpha, first, second)
	ids := b.request(first, instances(6)...)
	b.wantInFlight(ids, 0)
	var group sync.WaitGroup
	for _, o := range []*orchestrator{first, second} {
		o.WakeGrants()
		group.Go(func() { _, _ = o.Grant(t.Context()) })
	}
	group.Wait()
	for i := 0; ; i++ {
		running := b.inFlight(ids)
		if len(running) == 0 {
			break
		}
		if len(running) > 2 || len(running) < 2 && i < 5 {
			t.Fatalf("%d commands are in flight, want 2", len(running))
		}
		for _, id := range running {
			if row := b.row(id); !slices.Equal(row.Granted, []string{"alpha"}) || b.sent(id) == 0 {
				t.Errorf("operation %s counts in %v, %d commands sent", id, row.Granted, b.sent(id))
			}
		}
		o := []*orchestrator{first, second}[i%2]
		b.succeed(o, running...)
		b.grant(o)
	}
	for _, id := range ids {
		if row := b.row(id); row.Status != event.Succeeded || b.sent(id) != 2 {
			t.Errorf("operation %s is %s after %d commands", id, row.Status, b.sent(id))
		}
	}
}

func TestLimit_Turns_GlobalAccountsAndTypes(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	b.limits("limits: [{name: alpha, scope: {worker: alpha}, commands: 1}]\nweights: {heavy: 2}", o)
	var ops []event.Operation
	for i := range 4 {
		ops = append(ops, tenant(event.UpgradeKyma, "light", fmt.Sprintf("u-%d", i)))
	}
	for i := range 6 {
		ops = append(ops, tenant(event.Update, "heavy", fmt.Sprintf("h-%d", i)))
	}
	for i := range 4 {
		ops = append(ops, tenant(event.Provision, "light", fmt.Sprintf("l-%d", i)))
	}
	name := map[string]string{}
	for i, id := range b.requestAll(o, ops[:13]...) {
		name[id] = ops[i].InstanceID
	}
	var order []string
	next := func() {
		b.grant(o)
		running := b.inFlight(slices.Collect(maps.Keys(name)))
		if len(running) != 1 {
			t.Fatalf("%d commands are in flight, want 1", len(running))
		}
		order = append(order, name[running[0]])
		delete(name, running[0])
		b.exec(`UPDATE orchestrator.operations SET execute_before = NULL, granted = NULL, state = 'succeeded' WHERE id = $1`, running[0])
		o.WakeGrants()
	}
	for range 6 {
		next()
	}
	late := b.requestAll(o, ops[13], tenant(event.Update, "new", "n-0"))
	name[late[0]], name[late[1]] = "l-3", "n-0"
	for len(name) > 0 {
		next()
	}
	customers, upgrades := order[:11], order[11:]
	count := func(prefix string, names []string) (n int) {
		for _, name := range names {
			if strings.HasPrefix(name, prefix) {
				n++
			}
		}
		return n
	}
	if h, l := count("h", customers[:6]), count("l", customers[:6]); h != 4 || l != 2 {
		t.Errorf("of the first 6 commands %d are of the heavy account and %d of the other, want 4 and 2: %v", h, l, order)
	}
	if count("n", customers[6:9]) != 1 {
		t.Errorf("the new account waits for more than one command of each other account: %v", order)
	}
	if count("u", upgrades) != len(upgrades) || count("u", customers) > 0 {
		t.Errorf("upgrades are not last: %v", order)
	}
}

func TestLimit_Rate_PacesTheCommands(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	b.limits("limits: [{name: alpha, scope: {worker: alpha}, rate: 2/s}]", o)
	ids := b.request(o, instances(4)...)
	for want := 1; want <= 4; want++ {
		next := b.grant(o)
		b.wantInFlight(ids, want)
		again := b.grant(o)
		b.wantInFlight(ids, want)
		if at := b.clock.Now().Add(500 * time.Millisecond); !next.Equal(at) && want < 4 {
			t.Errorf("the next round is at %s and then %s, want %s", next, again, at)
		}
		b.clock.Advance(500 * time.Millisecond)
	}
}

func TestLimit_SeveralLimits_WaitsForTheFirstWithoutRoom(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	b.limits("limits: [{name: all, commands: 3}, {name: tenant, each: globalAccount, commands: 1}]", o)
	ids := b.requestAll(o, tenant(event.Update, "a", "i-1"), tenant(event.Update, "a", "i-2"), tenant(event.Update, "a", "i-3"), tenant(event.Update, "b", "i-4"))
	b.grant(o)
	if running := b.wantInFlight(ids, 2); !slices.Equal(running, []string{ids[0], ids[3]}) {
		t.Errorf("commands of %v are in flight, want of %s and %s", running, ids[0], ids[3])
	}
	if row := b.row(ids[0]); !slices.Equal(row.Granted, []string{"all", "tenant/a"}) {
		t.Errorf("the command counts in %v", row.Granted)
	}
	for i, want := range []int{0, 1, 2, 0} {
		queue := ""
		if want > 0 {
			queue = "tenant/a"
		}
		if row := b.row(ids[i]); row.Queue != queue {
			t.Errorf("operation %d waits for %q, want %q", i, row.Queue, queue)
		}
	}
	b.grant(o)
	positions, err := b.store.Positions(t.Context(), ids)
	require.NoError(t, err)
	if diff := cmp.Diff(map[string]int{ids[1]: 1, ids[2]: 2}, positions); diff != "" {
		t.Errorf("positions differ (-want +got):\n%s", diff)
	}
	b.succeed(o, ids[0])
	b.grant(o)
	if running := b.inFlight(ids); !slices.Equal(running, []string{ids[1], ids[3]}) && !slices.Equal(running, []string{ids[2], ids[3]}) {
		t.Errorf("commands of %v are in flight, want of the next one of a", running)
	}
}

func TestLimit_Changed_AppliesToCommandsInFlightAndWaiting(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	limits := b.limits("", o)
	ids := b.request(o, instances(3)...)
	b.wantInFlight(ids, 3)
	limits.apply(t, twoAlpha)
	b.grant(o)
	for _, id := range ids {
		if row := b.row(id); !slices.Equal(row.Granted, []string{"alpha"}) {
			t.Errorf("a command that was in flight when the limit was applied counts in %v", row.Granted)
		}
	}
	more := b.request(o, "j-1", "j-2", "j-3")
	b.grant(o)
	b.wantInFlight(more, 0)
	b.succeed(o, ids[0], ids[1])
	b.grant(o)
	b.wantInFlight(append(ids, more...), 2)

	limits.apply(t, "limits: [{name: alpha, scope: {worker: alpha}, commands: 4}]")
	b.grant(o)
	b.wantInFlight(append(ids, more...), 4)
	limits.apply(t, "limits: [{name: alpha, scope: {worker: beta}, commands: 1}]")
	b.grant(o)
	b.wantInFlight(append(ids, more...), 6)
	limits.apply(t, "limits: [{name: every, commands: 1}]")
	b.grant(o)
	b.wantInFlight(append(ids, more...), 6)
	late := b.request(o, "k-1")
	limits.apply(t, "limits: []")
	b.grant(o)
	b.wantInFlight(late, 1)
}

func TestLimit_OutageAfterTheGrant_SendsTheCommandInItsSlot(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	b.limits("limits: [{name: alpha, scope: {worker: alpha}, commands: 1}]", o)
	ids := b.request(o, "i-1", "i-2")
	o.bus.set(commandsOnly, false)
	<-o.granter.wake
	next, err := o.Grant(t.Context())
	if err == nil {
		t.Error("the commands are published")
	}
	require.Equal(t, b.clock.Now().Add(grantPause), next, "the next round")
	require.Empty(t, o.granter.wake, "the next round must not start before")
	o.bus.set(nil, false)
	running := b.wantInFlight(ids, 1)
	other := b.orchestrator() // another orchestrator, or this one after a restart
	other.deps.Limits = o.deps.Limits
	other.WakeGrants()
	b.grant(other)
	b.wantInFlight(ids, 1)
	require.NoError(t, o.Drain(t.Context()))
	if n := b.sent(running[0]); n != 1 {
		t.Errorf("%d commands are sent, want 1", n)
	}
	b.clock.Advance(2 * time.Minute) // no answer
	_, err = o.Due(t.Context(), true)
	require.NoError(t, err)
	if row := b.row(running[0]); row.Dispatch != 2 || len(row.Granted) != 1 {
		t.Errorf("dispatch %d, counts in %v, want the command sent again in its slot", row.Dispatch, row.Granted)
	}
	other.WakeGrants()
	b.grant(other)
	b.wantInFlight(ids, 1)
}

func TestLimit_Hold_KeepsAWaitingCommand(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	b.limits("limits: [{name: alpha, scope: {worker: alpha}, commands: 1}]", o)
	board := b.holds(nil, o)
	ids := b.request(o, "i-1", "i-2")
	board.set(hold.Scope{Instance: "i-1"})
	b.grant(o)
	b.held(ids[0], true)
	b.grant(o) // the hold has left room
	if running := b.wantInFlight(ids, 1); len(running) == 1 && running[0] != ids[1] {
		t.Error("the held operation has sent its command")
	}
	board.set()
	require.NoError(t, o.ReleaseHeld(t.Context()))
	if row := b.row(ids[0]); !row.Limited() {
		t.Error("the released command does not wait for the limit")
	}
	b.succeed(o, ids[1])
	b.grant(o)
	b.wantInFlight(ids, 1)
}

func TestLimit_Deadline_EndsTheWait(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	b.limits("limits: [{name: alpha, scope: {worker: alpha}, commands: 1}]", o)
	ids := b.request(o, "i-1", "i-2")
	b.grant(o)
	running := b.wantInFlight(ids, 1)
	waiting := ids[0]
	if running[0] == waiting {
		waiting = ids[1]
	}
	b.clock.Advance(time.Hour)
	_, err := o.Due(t.Context(), true)
	require.NoError(t, err)
	row := b.row(waiting)
	if row.Status != event.Failed || !strings.Contains(row.Error.Message, "has waited for the limit alpha") {
		t.Errorf("the operation is %s: %+v", row.Status, row.Error)
	}
	if err := o.Act(t.Context(), waiting, engine.Cancel{Reason: "late"}); err == nil {
		t.Error("an ended operation is cancelled")
	}
}
