package orchestration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Tests{M: m}) }

const patience = 20 * time.Second

// epoch is a Saturday.
var epoch = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// bundle is a database, a bus with fake services, and a clock that only the test advances.
type bundle struct {
	t     testing.TB
	bus   *bus.Bus
	db    *sqlx.DB
	store *store.Orchestrations
	clock *testkit.Clock

	mu        sync.Mutex
	instances []event.InstanceSummary
	windows   map[string]event.MaintenanceWindow
	asked     map[string]int // number of requests by operation
	upgraded  []string       // instances, in order
	pages     int
	notified  []event.NotifyRequest
	noNotice  error // the answer to every notification
	refuse    error // the answer to every request for upgrades
	// unanswered is the answer to every request for upgrades after its first one is recorded.
	unanswered error
	withdrawn  []string // operations
	// onPage is called for each request for instances. An error becomes the answer.
	onPage func(request event.InstancesRequest) error
	// onUpgrade is called for each request for upgrades.
	onUpgrade func()
	// concluding is called before a round ends an orchestration.
	concluding func(id string)
}

func setup(t testing.TB, instances int) *bundle {
	t.Helper()
	b := &bundle{
		t: t, bus: testkit.Bus(t, testkit.NATS(t).URL()), clock: testkit.NewClock(epoch), asked: map[string]int{},
		windows: map[string]event.MaintenanceWindow{},
	}
	db, err := postgres.Open(context.Background(), postgres.Config{URL: pgtest.Database(t, store.Migrate), MaxOpen: 10})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	b.db, b.store = db, store.NewOrchestrations(db, db)
	for i := range instances {
		b.instances = append(b.instances, instance(i))
		shoot := b.instances[i].Runtime.ShootName
		b.windows[shoot] = event.MaintenanceWindow{ShootName: shoot, Begin: "220000+0000", End: "230000+0000"}
	}
	for subject, handle := range map[string]func(data []byte) (any, error){
		event.AskInstances: b.page, event.AskUpgrade: b.upgrade, event.AskMaintenanceWindows: b.window, event.AskNotify: b.notify,
	} {
		stop, err := b.bus.Answer(subject, "test", func(_ context.Context, data []byte) (any, error) { return handle(data) })
		require.NoError(t, err)
		t.Cleanup(stop)
	}
	return b
}

func instance(i int) event.InstanceSummary {
	return event.InstanceSummary{
		InstanceID: fmt.Sprintf("i-%05d", i), Plan: event.Plan{ID: "azure", Name: "azure"}, GlobalAccountID: "ga", SubaccountID: "sa",
		Runtime: event.Runtime{ShootName: fmt.Sprintf("c-%05d", i), Region: "westeurope"}, State: event.InstanceProvisioned,
	}
}

func (b *bundle) page(data []byte) (any, error) {
	var request event.InstancesRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.pages++
	instances, onPage := b.instances, b.onPage
	b.mu.Unlock()
	if onPage != nil {
		if err := onPage(request); err != nil {
			return nil, err
		}
	}
	i, _ := slices.BinarySearchFunc(instances, request.After, func(s event.InstanceSummary, after string) int {
		if s.InstanceID <= after {
			return -1
		}
		return 1
	})
	answer := event.InstancesAnswer{Instances: instances[i:min(i+request.Limit, len(instances))]}
	if n := i + len(answer.Instances); n < len(instances) {
		answer.Next = instances[n-1].InstanceID
	}
	return answer, nil
}

func (b *bundle) upgrade(data []byte) (any, error) {
	var request event.UpgradeRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, err
	}
	if request.ExpiresAt.IsZero() || request.ExpiresAt.Sub(b.clock.Now()) > 30*time.Second {
		b.t.Errorf("the request expires at %s", request.ExpiresAt)
	}
	if b.onUpgrade != nil {
		b.onUpgrade()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		return nil, b.refuse
	}
	var answer event.UpgradeAnswer
	for _, u := range request.Upgrades {
		recorded := event.UpgradeRecorded{OperationID: u.OperationID}
		switch {
		case b.asked[u.OperationID] > 0:
		case request.ConfirmOnly:
			recorded.Refused = "the upgrade is not recorded"
			answer.Upgrades = append(answer.Upgrades, recorded)
			continue
		default:
			b.upgraded = append(b.upgraded, u.InstanceID)
		}
		b.asked[u.OperationID]++
		if b.unanswered != nil {
			return nil, b.unanswered
		}
		answer.Upgrades = append(answer.Upgrades, recorded)
	}
	return answer, nil
}

func (b *bundle) window(data []byte) (any, error) {
	var request event.MaintenanceWindowsRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, err
	}
	if len(request.ShootNames) > 1000 {
		return nil, errors.New("too many shoots")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var answer event.MaintenanceWindowsAnswer
	for _, shoot := range request.ShootNames {
		if w, ok := b.windows[shoot]; ok {
			answer.Windows = append(answer.Windows, w)
		}
	}
	return answer, nil
}

func (b *bundle) notify(data []byte) (any, error) {
	var request event.NotifyRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.noNotice != nil {
		return nil, b.noNotice
	}
	if !request.Cancelled && len(b.upgraded) > 0 {
		return nil, errors.New("operations have started before")
	}
	b.notified = append(b.notified, request)
	return event.NotifyAnswer{}, nil
}

func (b *bundle) notices() []event.NotifyRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.notified)
}

// set changes the answers.
func (b *bundle) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *bundle) started() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.upgraded)
}

// controller starts a controller. stop ends it and waits.
func (b *bundle) controller(policy *orchestration.Policy) (c *orchestration.Controller, stop func()) {
	b.t.Helper()
	deps := orchestration.Deps{
		Store: b.store, Asker: b.bus, Now: b.clock.Now, Log: testkit.Logger(b.t),
		Cancel:   func(context.Context, string, string) error { return nil },
		Withdraw: b.withdraw,
	}
	if b.concluding != nil {
		deps.Store = hooked{b.store, b.concluding}
	}
	c, err := orchestration.NewController(orchestration.Config{
		Every: 20 * time.Millisecond, Patience: 10 * time.Second, Policy: policy,
	}, deps)
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("controller ended: %v", err)
		}
	})
	b.t.Cleanup(stop)
	return c, stop
}

// hooked is a store that calls concluding before each Conclude.
type hooked struct {
	*store.Orchestrations

	concluding func(id string)
}

func (h hooked) Conclude(ctx context.Context, id string, seen orchestration.State, now time.Time) (*orchestration.Orchestration, time.Time, int, error) {
	h.concluding(id)
	return h.Orchestrations.Conclude(ctx, id, seen, now)
}

// order creates an orchestration.
func (b *bundle) order(body string) *orchestration.Orchestration {
	b.t.Helper()
	p, err := orchestration.ParseParameters(event.UpgradeKyma, []byte(body))
	require.NoError(b.t, err)
	o := orchestration.New(event.UpgradeKyma, p, b.clock.Now())
	require.NoError(b.t, b.store.Create(context.Background(), o))
	return o
}

func (b *bundle) get(id string) *orchestration.Orchestration {
	b.t.Helper()
	o, err := b.store.Get(context.Background(), id)
	require.NoError(b.t, err)
	return o
}

func (b *bundle) members(id string) []*orchestration.Member {
	b.t.Helper()
	list, _, err := b.store.Members(context.Background(), id, store.MemberFilter{Limit: 100_000})
	require.NoError(b.t, err)
	return list
}

func (b *bundle) await(c *orchestration.Controller, what string, ok func() bool) {
	b.t.Helper()
	testkit.Eventually(b.t, patience, what, func() bool {
		c.Wake() // the test clock does not move, so nothing becomes due
		return ok()
	})
}

// end makes the operation on an instance succeed.
func (b *bundle) end(instanceID string) { b.operation(instanceID, "succeeded") }

// operation creates the operation of the member in progress of an instance.
func (b *bundle) operation(instanceID, state string) {
	b.t.Helper()
	_, err := b.db.Exec(`
INSERT INTO orchestrator.operations (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt,
    dispatch, stage_memory, error)
SELECT operation_id, 'upgradeKyma', instance_id, 'azure', now(), $2, 1, 1, 0, 0, 0, 0, 0, false,
    CASE WHEN $2 = 'failed' THEN '{"message": "ext is broken: status 503"}'::jsonb END
FROM orchestrator.orchestration_members WHERE instance_id = $1 AND state = 'in progress'`, instanceID, state)
	require.NoError(b.t, err)
}

// withdraw cancels an operation that has not started.
func (b *bundle) withdraw(ctx context.Context, id, reason string) error {
	b.mu.Lock()
	b.withdrawn = append(b.withdrawn, id)
	b.mu.Unlock()
	_, err := b.db.ExecContext(ctx,
		`UPDATE orchestrator.operations SET state = 'cancelled', cancel_reason = $2 WHERE id = $1::uuid AND state = 'pending'`, id, reason)
	return err
}

func (b *bundle) stats(id string) orchestration.Stats {
	b.t.Helper()
	t, err := b.store.Tallies(context.Background(), []string{id})
	require.NoError(b.t, err)
	return t[id].Stats
}

const inWindows = `{"targets": {"include": [{"target": "all"}]}, "strategy": {"maintenanceWindow": true}}`

func TestController_MissedWindow_StartsInNextWindow(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	c, _ := b.controller(nil)
	o := b.order(inWindows)
	b.await(c, "the orchestration begins", func() bool { return b.get(o.ID).State == orchestration.InProgress })
	for _, m := range b.members(o.ID) {
		if m.State != orchestration.Pending || !m.WindowBegin.Equal(epoch.Add(14*time.Hour)) || !m.WindowEnd.Equal(epoch.Add(15*time.Hour)) {
			t.Errorf("member: %+v", m)
		}
	}
	b.clock.Advance(14*time.Hour - time.Minute)
	b.await(c, "it is checked before the window", func() bool { return len(b.members(o.ID)) == 2 })
	if got := b.started(); len(got) > 0 {
		t.Errorf("started before their window: %v", got)
	}
	b.clock.Advance(time.Minute)
	b.await(c, "one is started", func() bool { return len(b.started()) == 1 })
	// The other member waits for the only worker, and therefore misses its window.
	b.clock.Advance(time.Hour)
	b.end("i-00000")
	b.await(c, "the other waits for the next day", func() bool {
		for _, m := range b.members(o.ID) {
			if m.State == orchestration.Pending {
				return m.WindowBegin.Equal(epoch.Add(38*time.Hour)) && m.WindowEnd.Equal(epoch.Add(39*time.Hour))
			}
		}
		return false
	})
	if got := b.started(); len(got) != 1 {
		t.Errorf("started: %v", got)
	}
	b.clock.Advance(23*time.Hour + 59*time.Minute)
	b.await(c, "the other is started", func() bool { return len(b.started()) == 2 })
	b.end("i-00001")
	b.await(c, "the orchestration ends", func() bool { return b.get(o.ID).State == orchestration.Succeeded })
}

// The operations wait for their instances or for a hold. One has started before and is retried.
func TestController_QueuedAtEndOfWindow_WaitsForNextWindow(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	c, _ := b.controller(nil)
	o := b.order(`{"targets": {"include": [{"target": "all"}]}, "strategy": {"maintenanceWindow": true, "parallel": {"workers": 2}}}`)
	b.awaitState(c, o.ID, orchestration.InProgress)
	b.clock.Advance(14*time.Hour + 5*time.Minute)
	b.awaitStarted(c, instances(2)...)
	b.operation("i-00000", "pending")
	b.operation("i-00001", "pending")
	_, err := b.db.Exec(`UPDATE orchestrator.operations SET started_at = now() WHERE instance_id = 'i-00001'`)
	require.NoError(t, err)
	b.clock.Advance(54 * time.Minute)
	b.rounds(c)
	if diff := cmp.Diff(orchestration.Stats{orchestration.InProgress: 2}, b.stats(o.ID)); diff != "" {
		t.Errorf("members in the window (-want +got):\n%s", diff)
	}
	b.clock.Advance(time.Minute)
	b.await(c, "one waits again", func() bool {
		return cmp.Equal(b.stats(o.ID), orchestration.Stats{orchestration.InProgress: 1, orchestration.Pending: 1})
	})
	for _, m := range b.members(o.ID) {
		if m.State == orchestration.Pending && (m.InstanceID != "i-00000" || !m.WindowBegin.Equal(epoch.Add(38*time.Hour)) || !m.DueAt.Equal(m.WindowBegin)) {
			t.Errorf("waiting member %s: due at %s, window from %s", m.InstanceID, m.DueAt, m.WindowBegin)
		}
	}
	var reason string
	require.NoError(t, b.db.Get(&reason, `SELECT cancel_reason FROM orchestrator.operations WHERE state = 'cancelled'`))
	if reason != "the maintenance window ended before the operation started" {
		t.Errorf("reason %q", reason)
	}
	b.clock.Advance(23 * time.Hour)
	b.awaitStarted(c, "i-00000", "i-00000", "i-00001")
}

// The broker is unavailable from the middle of the window until the next morning. It has recorded the first of two operations.
func TestController_BrokerIsBackAfterWindow_RequestsInNextWindow(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	b.unanswered = errors.New("the answer is lost")
	c, _ := b.controller(nil)
	o := b.order(`{"targets": {"include": [{"target": "all"}]}, "strategy": {"maintenanceWindow": true, "parallel": {"workers": 2}}}`)
	b.awaitState(c, o.ID, orchestration.InProgress)
	b.clock.Advance(14*time.Hour + 50*time.Minute)
	b.awaitStarted(c, "i-00000")
	first := b.members(o.ID)
	b.set(func() { b.refuse, b.unanswered = errors.New("the database is unavailable"), nil })
	b.clock.Advance(10*time.Minute + 59*time.Second)
	b.set(func() { b.refuse = nil })
	// An earlier request may still be recorded.
	b.await(c, "a round ends", func() bool { return b.get(o.ID).Description == "" })
	if diff := cmp.Diff(orchestration.Stats{orchestration.InProgress: 2}, b.stats(o.ID)); diff != "" {
		t.Errorf("members right after the window (-want +got):\n%s", diff)
	}
	b.clock.Advance(9 * time.Hour)
	b.await(c, "the other waits again", func() bool {
		return cmp.Equal(b.stats(o.ID), orchestration.Stats{orchestration.InProgress: 1, orchestration.Pending: 1})
	})
	for _, m := range b.members(o.ID) {
		same := slices.ContainsFunc(first, func(f *orchestration.Member) bool { return f.OperationID == m.OperationID })
		if want := m.InstanceID == "i-00000"; same != want || (m.State == orchestration.InProgress) != want {
			t.Errorf("member %s: state %s, its operation is the first one: %t", m.InstanceID, m.State, same)
		}
	}
	b.rounds(c)
	if diff := cmp.Diff([]string{"i-00000"}, b.started()); diff != "" {
		t.Errorf("requested outside the window (-want +got):\n%s", diff)
	}
	b.clock.Advance(14 * time.Hour)
	b.awaitStarted(c, instances(2)...)
}

func TestController_Policy_OverridesShootWindow(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	policy, err := orchestration.ParsePolicy([]byte(`{"rules": [{"match": {"plan": "azure"}, "days": ["Tue"]}]}`))
	require.NoError(t, err)
	c, _ := b.controller(policy)
	o := b.order(inWindows)
	b.await(c, "the orchestration begins", func() bool { return b.get(o.ID).State == orchestration.InProgress })
	if m := b.members(o.ID)[0]; !m.WindowBegin.Equal(time.Date(2026, 11, 24, 22, 0, 0, 0, time.UTC)) {
		t.Errorf("window from %s", m.WindowBegin)
	}
}

func TestController_NoWindow_SkipsMember(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	b.windows = map[string]event.MaintenanceWindow{"c-00000": {ShootName: "c-00000", Begin: "at night", End: "in the morning"}}
	c, _ := b.controller(nil)
	o := b.order(inWindows)
	b.await(c, "the orchestration ends", func() bool { return b.get(o.ID).State == orchestration.Succeeded })
	for _, m := range b.members(o.ID) {
		if m.State != orchestration.Skipped || m.Description != "shoot "+m.ShootName+" has no maintenance window, and the maintenance policy gives it none" {
			t.Errorf("member: %+v", m)
		}
	}
}

func TestController_Scheduled_UpdatesTargetsUntilStart(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	c, _ := b.controller(nil)
	o := b.order(`{"targets": {"include": [{"target": "all"}]}, "strategy": {"schedule": "` + epoch.Add(time.Hour).Format(time.RFC3339) + `", "parallel": {"workers": 5}}}`)
	b.await(c, "the targets are known", func() bool { return len(b.members(o.ID)) == 3 })
	if got := b.get(o.ID); got.State != orchestration.Pending || got.Description != "scheduled for 2026-11-21T09:00:00Z, 3 operations" ||
		!got.DueAt.Equal(epoch.Add(5*time.Minute)) {
		t.Errorf("orchestration: %+v", got)
	}
	before := map[string]string{}
	for _, m := range b.members(o.ID) {
		before[m.InstanceID] = m.OperationID
		if !m.DueAt.Equal(epoch.Add(time.Hour)) {
			t.Errorf("member is due at %s", m.DueAt)
		}
	}
	// One instance is suspended, and one is added.
	b.set(func() {
		b.instances = []event.InstanceSummary{instance(0), instance(1), instance(2), instance(3)}
		b.instances[1].State = event.InstanceSuspended
	})
	b.clock.Advance(5 * time.Minute)
	b.await(c, "the targets are looked up again", func() bool { return b.get(o.ID).DueAt.Equal(epoch.Add(10 * time.Minute)) })
	var now []string
	for _, m := range b.members(o.ID) {
		now = append(now, m.InstanceID)
		if id := before[m.InstanceID]; id != "" && id != m.OperationID {
			t.Errorf("operation %s on %s has become %s", id, m.InstanceID, m.OperationID)
		}
	}
	slices.Sort(now)
	if diff := cmp.Diff([]string{"i-00000", "i-00002", "i-00003"}, now); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	if got := b.started(); len(got) > 0 {
		t.Errorf("started before its time: %v", got)
	}
	b.clock.Advance(55 * time.Minute)
	b.await(c, "all are started", func() bool { return len(b.started()) == 3 })
}

func TestController_Canceled_DoesNotStart(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	// The orchestration is canceled while its targets are looked up.
	var o *orchestration.Orchestration
	b.onPage = func(event.InstancesRequest) error { return b.store.Cancel(context.Background(), o.ID, epoch) }
	o = b.order(`{"targets": {"include": [{"target": "all"}]}}`)
	c, _ := b.controller(nil)
	b.await(c, "the orchestration is canceled", func() bool { return b.get(o.ID).State == orchestration.Canceled })
	if got, members := b.started(), b.members(o.ID); len(got) > 0 || len(members) > 0 {
		t.Errorf("started: %v, members: %v", got, members)
	}
}

func TestController_FailedLookup_IsRetried(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.onPage = func(event.InstancesRequest) error { return errors.New("the database is unavailable") }
	c, _ := b.controller(nil)
	o := b.order(`{"targets": {"include": [{"target": "all"}]}}`)
	b.await(c, "the description has the reason", func() bool {
		return b.get(o.ID).Description == "the targets cannot be looked up now: ask keb.ask.broker.instances: the database is unavailable"
	})
	b.set(func() { b.onPage = nil })
	b.clock.Advance(time.Second)
	b.await(c, "it begins", func() bool { return len(b.started()) == 1 })
}

func TestController_BrokerFails_DescribesReason(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.refuse = errors.New("the database is unavailable")
	c, _ := b.controller(nil)
	o := b.order(`{"targets": {"include": [{"target": "all"}]}}`)
	b.await(c, "the description has the reason", func() bool {
		return b.get(o.ID).Description == "operations cannot be started now: ask keb.ask.broker.upgrade: the database is unavailable"
	})
	b.set(func() { b.refuse = nil })
	b.await(c, "the description is updated", func() bool { return b.get(o.ID).Description == "" })
	if got := b.started(); len(got) != 1 {
		t.Errorf("started: %v", got)
	}
}

func TestController_MissingOperation_IsRequestedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	c, _ := b.controller(nil)
	o := b.order(`{"targets": {"include": [{"target": "all"}]}}`)
	b.await(c, "it is started", func() bool { return len(b.started()) == 1 })
	id := b.members(o.ID)[0].OperationID
	times := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.asked[id]
	}
	b.await(c, "the answer is stored", func() (recorded bool) {
		require.NoError(t, b.db.Get(&recorded, `SELECT recorded FROM orchestrator.orchestration_members`))
		return recorded
	})
	b.clock.Advance(time.Minute + time.Second)
	b.await(c, "it is requested again", func() bool { return times() == 2 })
	b.end("i-00000")
	b.await(c, "the orchestration ends", func() bool { return b.get(o.ID).State == orchestration.Succeeded })
	if n := times(); n != 2 {
		t.Errorf("requested %d times", n)
	}
}

func TestController_KilledDuringLookup_CreatesMembersOnce(t *testing.T) {
	t.Parallel()
	const everything = 3000
	b := setup(t, everything)
	reached, held := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() {
		close(reached)
		<-held
	})
	b.onPage = func(request event.InstancesRequest) error {
		if request.After == "i-00999" {
			hold()
		}
		return nil
	}
	first, stop := b.controller(nil)
	o := b.order(inWindows)
	b.await(first, "some of the targets are looked up", func() bool {
		select {
		case <-reached:
			return true
		default:
			return false
		}
	})
	stop()
	close(held)
	c, _ := b.controller(nil)
	b.await(c, "the orchestration begins", func() bool { return b.get(o.ID).State == orchestration.InProgress })
	if diff := cmp.Diff(orchestration.Stats{orchestration.Pending: everything}, b.stats(o.ID)); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	var distinct int
	require.NoError(t, b.db.Get(&distinct, `SELECT count(DISTINCT instance_id) FROM orchestrator.orchestration_members`))
	if distinct != everything {
		t.Errorf("%d instances are members", distinct)
	}
}

// BenchmarkCreateOrchestration measures the time from an order to the last of its 10,000 members, each with a window.
func BenchmarkCreateOrchestration(bench *testing.B) {
	const everything = 10_000
	b := setup(bench, everything)
	c, _ := b.controller(nil)
	for bench.Loop() {
		o := b.order(inWindows)
		c.Wake()
		testkit.Eventually(bench, patience, "the orchestration begins", func() bool { return b.get(o.ID).State == orchestration.InProgress })
		if n := b.stats(o.ID)[orchestration.Pending]; n != everything {
			bench.Fatalf("%d members", n)
		}
		bench.StopTimer()
		require.NoError(bench, b.store.Cancel(context.Background(), o.ID, epoch))
		bench.StartTimer()
	}
}
