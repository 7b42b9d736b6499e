package store

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

func open(t testing.TB) *Store {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.Database(t, Migrate), MaxOpen: 4})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return New(db, time.Minute)
}

func exec(t testing.TB, s *Store, statement string, args ...any) {
	t.Helper()
	_, err := s.db.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err)
}

// in runs f in a transaction that must succeed.
func in(t testing.TB, s *Store, f func(ctx context.Context, tx *Tx) error) {
	t.Helper()
	require.NoError(t, s.InTx(t.Context(), f))
}

// sample returns an instance of plan aws. The name of its first operation is its id with the suffix "-1".
func sample(id string) *instance.Instance {
	return &instance.Instance{
		ID: id, ServiceID: "s", Plan: event.Plan{ID: "p", Name: "aws"}, OperationID: id + "-1", CreatedAt: time.Unix(1000, 0),
		Context: event.Context{GlobalAccountID: "ga-" + id, SubaccountID: "sa-" + id, UserID: "user@example.org", PlatformRegion: "cf-eu10"},
		Runtime: event.Runtime{Name: "n", ShootName: "shoot-" + id, Provider: "aws", Region: "eu-central-1"},
		Sent:    json.RawMessage(`{}`), Effective: json.RawMessage(`{"kymaVersion":"2.20.0"}`),
	}
}

// did is an operation and its state.
type did struct {
	kind  event.OperationType
	state event.OperationState
	// suspension marks suspensions and unsuspensions.
	suspension bool
	dry        bool
}

// record stores an instance with these operations, the oldest first.
func record(t testing.TB, s *Store, i *instance.Instance, seen ...did) {
	t.Helper()
	in(t, s, func(ctx context.Context, tx *Tx) error {
		_, err := tx.Reserve(ctx, i)
		return err
	})
	for n, d := range seen {
		operation(t, s, i, fmt.Sprintf("%s-%d", i.ID, n+1), d)
	}
}

func operation(t testing.TB, s *Store, i *instance.Instance, id string, d did) {
	t.Helper()
	in(t, s, func(ctx context.Context, tx *Tx) error {
		r := Request{Operation: i.Event(id, d.kind, nil), At: time.Unix(2000, 0), Suspension: d.suspension}
		if d.kind == event.UpgradeKyma || d.kind == event.UpgradeCluster {
			r.Operation.Upgrade = &event.Upgrade{OrchestrationID: "orchestration", KymaVersion: "2.21.0", DryRun: d.dry}
			return tx.InsertUpgrades(ctx, []Request{r})
		}
		return tx.InsertOperation(ctx, r)
	})
	if d.state == event.Pending {
		return
	}
	apply(t, s, instance.Change{OperationID: id, Progress: instance.Progress{State: d.state, Cursor: 5}})
}

func apply(t testing.TB, s *Store, changes ...instance.Change) {
	t.Helper()
	require.NoError(t, s.Apply(t.Context(), changes, time.Unix(3000, 0)))
}

func state(t testing.TB, s *Store, id string) RuntimeState {
	t.Helper()
	var out string
	require.NoError(t, s.db.GetContext(t.Context(), &out, `SELECT state FROM broker.runtimes WHERE instance_id = $1`, id))
	return RuntimeState(out)
}

func TestRuntimeState_Operations_DetermineIt(t *testing.T) {
	t.Parallel()
	s := open(t)
	ready := did{kind: event.Provision, state: event.Succeeded}
	suspended := did{kind: event.Deprovision, state: event.Succeeded, suspension: true}
	for name, c := range map[string]struct {
		seen []did
		want RuntimeState
	}{
		"ordered":                   {[]did{{kind: event.Provision, state: event.Pending}}, RuntimeProvisioning},
		"provisioning":              {[]did{{kind: event.Provision, state: event.InProgress}}, RuntimeProvisioning},
		"provisioned":               {[]did{ready}, RuntimeSucceeded},
		"provisioning failed":       {[]did{{kind: event.Provision, state: event.Failed}}, RuntimeFailed},
		"provisioning cancelled":    {[]did{{kind: event.Provision, state: event.Cancelled}}, RuntimeFailed},
		"update waits":              {[]did{ready, {kind: event.Update, state: event.Pending}}, RuntimeSucceeded},
		"updating":                  {[]did{ready, {kind: event.Update, state: event.InProgress}}, RuntimeUpdating},
		"update failed":             {[]did{ready, {kind: event.Update, state: event.Failed}}, RuntimeError},
		"updated after a failure":   {[]did{ready, {kind: event.Update, state: event.Failed}, {kind: event.Update, state: event.Succeeded}}, RuntimeSucceeded},
		"upgrading":                 {[]did{ready, {kind: event.UpgradeKyma, state: event.InProgress}}, RuntimeUpgrading},
		"upgrading, update waits":   {[]did{ready, {kind: event.UpgradeCluster, state: event.InProgress}, {kind: event.Update, state: event.Pending}}, RuntimeUpgrading},
		"upgrade failed":            {[]did{ready, {kind: event.UpgradeKyma, state: event.Failed}}, RuntimeError},
		"upgrade cancelled":         {[]did{ready, {kind: event.UpgradeKyma, state: event.Cancelled}}, RuntimeSucceeded},
		"dry run":                   {[]did{ready, {kind: event.UpgradeKyma, state: event.InProgress, dry: true}}, RuntimeSucceeded},
		"dry run failed":            {[]did{ready, {kind: event.UpgradeKyma, state: event.Failed, dry: true}}, RuntimeSucceeded},
		"dry run after a failure":   {[]did{ready, {kind: event.Update, state: event.Failed}, {kind: event.UpgradeCluster, state: event.Succeeded, dry: true}}, RuntimeError},
		"dry runs during an update": {[]did{ready, {kind: event.Update, state: event.InProgress}, {kind: event.UpgradeKyma, state: event.Failed, dry: true}, {kind: event.UpgradeKyma, state: event.Succeeded, dry: true}}, RuntimeUpdating},
		"failure after a dry run":   {[]did{ready, {kind: event.UpgradeKyma, state: event.Succeeded, dry: true}, {kind: event.UpgradeKyma, state: event.Failed}}, RuntimeError},
		"suspended after a dry run": {[]did{ready, {kind: event.UpgradeKyma, state: event.Failed, dry: true}, suspended}, RuntimeSuspended},
		"suspension waits":          {[]did{ready, {kind: event.Deprovision, state: event.Pending, suspension: true}}, RuntimeDeprovisioning},
		"suspended":                 {[]did{ready, suspended}, RuntimeSuspended},
		"suspended and updated":     {[]did{ready, suspended, {kind: event.Update, state: event.Failed}}, RuntimeSuspended},
		"suspension failed":         {[]did{ready, {kind: event.Deprovision, state: event.Failed, suspension: true}}, RuntimeFailed},
		"unsuspension":              {[]did{ready, suspended, {kind: event.Provision, state: event.Pending, suspension: true}}, RuntimeProvisioning},
		"unsuspended":               {[]did{ready, suspended, {kind: event.Provision, state: event.Succeeded, suspension: true}}, RuntimeSucceeded},
		"deprovisioning":            {[]did{ready, {kind: event.Deprovision, state: event.InProgress}}, RuntimeDeprovisioning},
		"deprovisioning suspended":  {[]did{ready, suspended, {kind: event.Deprovision, state: event.Pending}}, RuntimeDeprovisioning},
		"deprovisioning failed":     {[]did{ready, {kind: event.Deprovision, state: event.Failed}}, RuntimeFailed},
		"provisioning again failed": {[]did{ready, suspended, {kind: event.Provision, state: event.Failed, suspension: true}}, RuntimeFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := sample(name)
			record(t, s, i, c.seen...)
			if got := state(t, s, i.ID); got != c.want {
				t.Errorf("state is %s, want %s", got, c.want)
			}
		})
	}
}

func TestRuntimes_Removed_AreListedUntilPurge(t *testing.T) {
	t.Parallel()
	s := open(t)
	i := sample("i")
	record(t, s, i, did{kind: event.Provision, state: event.Succeeded})
	apply(t, s, instance.Change{
		OperationID: "i-1", Details: json.RawMessage(`{"provisioner":{"runtimeId":"rt"}}`),
		Progress: instance.Progress{State: event.Succeeded, Cursor: 9},
	})
	operation(t, s, i, "i-2", did{kind: event.Deprovision, state: event.InProgress})
	in(t, s, func(ctx context.Context, tx *Tx) error { return tx.MarkDeleted(ctx, "i", time.Unix(2500, 0)) })
	if got := state(t, s, "i"); got != RuntimeDeprovisioning {
		t.Errorf("state is %s before the end", got)
	}
	apply(t, s, instance.Change{OperationID: "i-2", Progress: instance.Progress{State: event.Succeeded, Cursor: 6, NotCompleted: []string{"EDP_Deregistration"}}})
	if got := state(t, s, "i"); got != RuntimeIncomplete {
		t.Errorf("state is %s with a step left", got)
	}
	operation(t, s, i, "i-3", did{kind: event.Deprovision, state: event.InProgress})
	in(t, s, func(ctx context.Context, tx *Tx) error { return tx.Bury(ctx, "i", time.Unix(2600, 0)) })
	apply(t, s, instance.Change{OperationID: "i-3", Progress: instance.Progress{State: event.Succeeded, Cursor: 6}})
	found, total, err := s.Runtimes(t.Context(), RuntimeFilter{InstanceIDs: []string{"i"}, Limit: 10})
	if err != nil || total != 1 || len(found) != 1 {
		t.Fatalf("%d of %d, %v", len(found), total, err)
	}
	r := found[0]
	if r.State != RuntimeDeprovisioned || r.UserID != "" || r.Effective != nil || r.GlobalAccountID != "ga-i" || r.ShootName != "shoot-i" {
		t.Errorf("runtime is %+v", r)
	}
	if !r.DeletedAt.Equal(time.Unix(2600, 0)) || len(r.Operations) != 2 {
		t.Errorf("deleted at %s, with %d operations", r.DeletedAt, len(r.Operations))
	}
	require.NoError(t, s.Purge(t.Context(), time.Unix(9000, 0), time.Unix(0, 0)))
	if _, total, err := s.Runtimes(t.Context(), RuntimeFilter{Limit: 10}); err != nil || total != 0 {
		t.Errorf("%d runtimes are left, %v", total, err)
	}
}

func TestPurge_Backlog_IsDeletedInBatches(t *testing.T) {
	t.Parallel()
	s := open(t)
	const n = purgeBatch + 1
	for _, statement := range []string{
		`INSERT INTO broker.runtimes (instance_id, state, service_id, plan_id, plan_name, global_account_id, subscription_account_id,
				subaccount_id, platform_region, region, provider, shoot_name, created_at)
			SELECT 'i' || n, 'deprovisioned', '', '', '', '', '', '', '', '', '', '', now() FROM generate_series(1, $1) n`,
		`INSERT INTO broker.operations (id, instance_id, type, state, created_at, updated_at, heard_at)
			SELECT 'o' || n, 'i' || n, 'deprovision', 'succeeded', to_timestamp(1), to_timestamp(1), now() FROM generate_series(1, $1) n`,
		`INSERT INTO broker.tombstones (instance_id, deleted_at) SELECT 'i' || n, to_timestamp(1) FROM generate_series(1, $1) n`,
	} {
		require.NoError(t, s.exec(t.Context(), "fill", statement, n))
	}
	tables := []string{"operations", "runtimes", "tombstones"}
	limit := fmt.Sprintf(`CREATE FUNCTION limit_batch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF (SELECT count(*) FROM gone) > %d THEN RAISE 'too many rows in one statement'; END IF; RETURN NULL; END $$`, purgeBatch)
	require.NoError(t, s.exec(t.Context(), "limit", limit))
	for _, table := range tables {
		require.NoError(t, s.exec(t.Context(), "limit", `CREATE TRIGGER limit_batch AFTER DELETE ON broker.`+table+`
			REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION limit_batch()`))
	}
	require.NoError(t, s.Purge(t.Context(), time.Unix(9000, 0), time.Unix(9000, 0)))
	for _, table := range tables {
		var left int
		require.NoError(t, s.db.GetContext(t.Context(), &left, `SELECT count(*) FROM broker.`+table))
		if left != 0 {
			t.Errorf("%d rows are left in %s", left, table)
		}
	}
}

// The last transaction sees the changes of all others, so no row is outdated at the end.
func TestRuntimes_ConcurrentChanges_AreConsistent(t *testing.T) {
	t.Parallel()
	s := open(t)
	for n := range 40 {
		i := sample(fmt.Sprintf("i%d", n))
		record(t, s, i, did{kind: event.Provision, state: event.InProgress}, did{kind: event.Update, state: event.Pending})
		var together sync.WaitGroup
		for _, c := range []instance.Change{
			ended(i.ID+"-1", event.Succeeded, 9, `{}`),
			{OperationID: i.ID + "-1", Progress: instance.Progress{State: event.InProgress, Cursor: 7}},
			{OperationID: i.ID + "-2", Progress: instance.Progress{State: event.InProgress, Cursor: 1}},
		} {
			together.Go(func() {
				if err := s.Apply(t.Context(), []instance.Change{c}, time.Unix(3000, 0)); err != nil {
					t.Errorf("apply: %v", err)
				}
			})
		}
		together.Go(func() {
			err := s.InTx(t.Context(), func(ctx context.Context, tx *Tx) error {
				if _, err := tx.Lock(ctx, i.ID); err != nil {
					return err
				}
				if err := tx.Supersede(ctx, i.ID+"-1", i.ID+"-3"); err != nil {
					return err
				}
				return tx.InsertOperation(ctx, Request{Operation: i.Event(i.ID+"-3", event.Deprovision, nil), At: time.Unix(2500, 0)})
			})
			if err != nil {
				t.Errorf("deprovision: %v", err)
			}
		})
		together.Wait()
	}
	var wrong []string
	err := s.db.SelectContext(t.Context(), &wrong, `SELECT instance_id || ' ' || state FROM broker.runtimes
		WHERE state <> broker.runtime_state(instance_id, false) OR state <> 'deprovisioning'`)
	if err != nil || len(wrong) > 0 {
		t.Errorf("the list has %v, %v", wrong, err)
	}
}

// saved returns the runtime id and the details of an instance.
func saved(t testing.TB, s *Store, id string) (runtimeID, details string) {
	t.Helper()
	var row struct {
		RuntimeID string  `db:"runtime_id"`
		Listed    string  `db:"listed"`
		Details   *string `db:"details"`
	}
	err := s.db.GetContext(t.Context(), &row, `SELECT i.runtime_id, r.runtime_id AS listed, i.details FROM broker.instances i
		JOIN broker.runtimes r ON r.instance_id = i.id WHERE i.id = $1`, id)
	require.NoError(t, err)
	if row.Listed != row.RuntimeID {
		t.Errorf("the list has runtime %q, the instance %q", row.Listed, row.RuntimeID)
	}
	if row.Details != nil {
		details = *row.Details
	}
	return row.RuntimeID, details
}

func ended(id string, state event.OperationState, cursor int64, details string, open ...string) instance.Change {
	c := instance.Change{OperationID: id, Progress: instance.Progress{State: state, Cursor: cursor, NotCompleted: open}}
	if details != "" {
		c.Details = json.RawMessage(details)
	}
	return c
}

func TestApply_Details_KeepsNewestEndedOperation(t *testing.T) {
	t.Parallel()
	s := open(t)
	const first, second = `{"provisioner":{"runtimeId":"rt-1"}}`, `{"provisioner":{"runtimeId":"rt-2"},"avs":{"internalId":7}}`
	for name, c := range map[string]struct {
		kinds    []did
		changes  [][]instance.Change
		runtime  string
		contents string
	}{
		"of the first": {nil, [][]instance.Change{{ended("-1", event.Succeeded, 9, first)}}, "rt-1", first},
		"of the newest": {[]did{{kind: event.Update}}, [][]instance.Change{
			{ended("-1", event.Succeeded, 9, first)}, {ended("-2", event.Failed, 9, second)},
		}, "rt-2", second},
		"both at once": {[]did{{kind: event.Update}}, [][]instance.Change{
			{ended("-2", event.Failed, 9, second), ended("-1", event.Succeeded, 9, first)},
		}, "rt-2", second},
		"facts in the wrong order": {[]did{{kind: event.Update}}, [][]instance.Change{
			{ended("-2", event.Succeeded, 9, second)}, {ended("-1", event.Succeeded, 9, first)},
		}, "rt-2", second},
		"an old fact again": {nil, [][]instance.Change{
			{ended("-1", event.Succeeded, 9, second)}, {ended("-1", event.Failed, 3, first)},
		}, "rt-2", second},
		"a waiting operation was cancelled": {[]did{{kind: event.UpgradeKyma}}, [][]instance.Change{
			{ended("-1", event.Succeeded, 9, first)}, {ended("-2", event.Cancelled, 1, "")},
		}, "rt-1", first},
		"an own cluster": {nil, [][]instance.Change{
			{ended("-1", event.Succeeded, 9, `{"reconciler":{"runtimeId":"own"}}`)},
		}, "own", `{"reconciler":{"runtimeId":"own"}}`},
		"suspended": {[]did{{kind: event.Deprovision, suspension: true}}, [][]instance.Change{
			{ended("-1", event.Succeeded, 9, first)}, {ended("-2", event.Succeeded, 9, second)},
		}, "", ""},
		"suspended, with a step left": {[]did{{kind: event.Deprovision, suspension: true}}, [][]instance.Change{
			{ended("-1", event.Succeeded, 9, first)}, {ended("-2", event.Succeeded, 9, second, "EDP_Deregistration")},
		}, "", second},
		"suspension failed": {[]did{{kind: event.Deprovision, suspension: true}}, [][]instance.Change{
			{ended("-1", event.Succeeded, 9, first)}, {ended("-2", event.Failed, 9, second)},
		}, "rt-2", second},
		"a character that Postgres cannot keep": {nil, [][]instance.Change{
			{ended("-1", event.Succeeded, 9, `{"provisioner":{"runtimeId":"a\u0000b"}}`)},
		}, "ab", `{"provisioner":{"runtimeId":"a\u0000b"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := sample(name)
			record(t, s, i, did{kind: event.Provision, state: event.Pending})
			for n, k := range c.kinds {
				k.state = event.Pending
				operation(t, s, i, fmt.Sprintf("%s-%d", name, n+2), k)
			}
			for _, batch := range c.changes {
				for n := range batch {
					batch[n].OperationID = name + batch[n].OperationID
				}
				apply(t, s, batch...)
			}
			if runtime, details := saved(t, s, name); runtime != c.runtime || details != c.contents {
				t.Errorf("runtime %q, details %s; want %q, %s", runtime, details, c.runtime, c.contents)
			}
		})
	}
}

func TestNewestOperation_Upgrade_IsIgnored(t *testing.T) {
	t.Parallel()
	s := open(t)
	i := sample("i")
	record(t, s, i, did{kind: event.Provision, state: event.Succeeded}, did{kind: event.UpgradeKyma, state: event.InProgress})
	got, err := s.Instance(t.Context(), "i")
	if err != nil || got.OperationID != "i-1" {
		t.Errorf("the newest operation is %q, %v", got.OperationID, err)
	}
	newest, err := s.NewestOperation(t.Context(), "i")
	if err != nil || newest.ID != "i-1" {
		t.Errorf("the platform would see %q, %v", newest.ID, err)
	}
	silent, _, err := s.Silent(t.Context(), time.Unix(9000, 0), 0, 10)
	if err != nil || len(silent) != 0 {
		t.Errorf("silent before it is published: %v, %v", silent, err)
	}
	require.NoError(t, s.Published(t.Context(), []string{"i-2"}, time.Unix(3000, 0)))
	if silent, _, err = s.Silent(t.Context(), time.Unix(9000, 0), 0, 10); err != nil || !slices.Equal(silent, []string{"i-2"}) {
		t.Errorf("the repair looks after %v, %v", silent, err)
	}
}

func TestSilent_OperationBeforeTheFirst_IsFoundAfterAMinute(t *testing.T) {
	t.Parallel()
	s := open(t)
	record(t, s, sample("i"), did{kind: event.Provision, state: event.InProgress})
	require.NoError(t, s.Published(t.Context(), []string{"i-1"}, time.Unix(3000, 0)))
	for age, want := range map[time.Duration]int{0: 0, time.Minute: 1} {
		s.first.Store(&firstSeq{seq: 1_000_000, readAt: time.Now().Add(-age)})
		if silent, _, err := s.Silent(t.Context(), time.Unix(9000, 0), 0, 10); err != nil || len(silent) != want {
			t.Errorf("%s after the first position was read the silent ones are %v, %v; want %d", age, silent, err, want)
		}
	}
}

func TestRuntimes_Pages_ContainEachRuntimeOnce(t *testing.T) {
	t.Parallel()
	s := open(t)
	var want []string
	for n := range 7 {
		i := sample(fmt.Sprintf("i%d", n))
		i.CreatedAt = time.Unix(int64(1000+n/2), 0) // some have the same time
		record(t, s, i, did{kind: event.Provision, state: event.Pending})
		want = append(want, i.ID)
	}
	for size := 1; size <= 8; size++ {
		var got []string
		for offset := 0; offset < 9; offset += size {
			found, total, err := s.Runtimes(t.Context(), RuntimeFilter{Limit: size, Offset: offset})
			if err != nil || total != 7 {
				t.Fatalf("total %d, %v", total, err)
			}
			for _, r := range found {
				got = append(got, r.InstanceID)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v, want %v", size, got, want)
		}
		got = nil
		for f := (RuntimeFilter{Limit: size}); ; {
			found, total, err := s.Runtimes(t.Context(), f)
			if err != nil || total != 7 {
				t.Fatalf("total %d, %v", total, err)
			}
			for _, r := range found {
				got = append(got, r.InstanceID)
				f.After = RuntimePosition{CreatedAt: r.CreatedAt, InstanceID: r.InstanceID}
			}
			if len(found) < size {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d after the last runtime: %v, want %v", size, got, want)
		}
	}
}

func TestRuntimes_UpdatesAndUpgrades_ShowsNewestTwo(t *testing.T) {
	t.Parallel()
	s := open(t)
	seen := []did{{kind: event.Provision, state: event.Succeeded}}
	for range 3 {
		seen = append(seen, did{kind: event.Update, state: event.Succeeded}, did{kind: event.UpgradeKyma, state: event.Succeeded})
	}
	for range 3 {
		seen = append(seen, did{kind: event.Deprovision, state: event.Succeeded, suspension: true},
			did{kind: event.Provision, state: event.Succeeded, suspension: true})
	}
	record(t, s, sample("i"), append(seen, did{kind: event.UpgradeCluster, state: event.Pending})...)
	for last, want := range map[bool]string{
		false: "deprovision: / provision:1 i-1 / suspension:3 i-12 i-10 i-8 / unsuspension:3 i-13 i-11 i-9 / " +
			"update:3 i-6 i-4 / upgradeCluster:1 i-14 / upgradeKyma:3 i-7 i-5",
		true: "unsuspension:1 i-13",
	} {
		found, _, err := s.Runtimes(t.Context(), RuntimeFilter{Limit: 10, LastOperation: last})
		require.NoError(t, err)
		var kinds []string
		for _, o := range found[0].Operations {
			prefix := fmt.Sprintf("%s:%d", o.Kind, o.Total)
			if n := len(kinds) - 1; n >= 0 && strings.HasPrefix(kinds[n], prefix) {
				kinds[n] += " " + o.ID
				continue
			}
			kinds = append(kinds, prefix+" "+o.ID)
		}
		if got := strings.Join(kinds, " / "); got != strings.TrimPrefix(want, "deprovision: / ") {
			t.Errorf("last %t: %s, want %s", last, got, want)
		}
	}
}

// populate creates n instances with about three operations each. A twentieth of the instances is removed.
func populate(t testing.TB, s *Store, n int) {
	t.Helper()
	exec(t, s, `INSERT INTO broker.instances (id, service_id, plan_id, plan_name, context, runtime, parameters,
			effective_parameters, dashboard_url, request_hash, operation_id, created_at, details, details_seq, runtime_id, expired_at)
		SELECT md5(n::text), 's', 'p-' || n % 9, (ARRAY['azure', 'azure', 'azure', 'aws', 'gcp', 'trial', 'free', 'preview', 'openstack'])[1 + n % 9],
			json_build_object('globalAccountId', 'ga-' || n % ($1 / 20), 'subaccountId', 'sa-' || n % ($1 / 2), 'userId', 'u@example.org',
				'platformRegion', 'cf-eu10'),
			json_build_object('name', 'n', 'shootName', 'c-' || n, 'shootDomain', 'd', 'provider', 'azure', 'region', 'region-' || n % 25),
			'{}', '{"machineType":"m","autoScalerMin":3,"autoScalerMax":20,"kymaVersion":"2.20.0"}', 'u', 'h', n || '-1',
			'2026-01-01'::timestamptz + n * interval '1 minute', '{"provisioner":{"runtimeId":"rt"},"avs":{"internalId":1}}', n, 'rt-' || n,
			CASE WHEN n % 50 = 0 THEN now() END
		FROM generate_series(1, $1) AS n`, n)
	exec(t, s, `INSERT INTO broker.operations (id, instance_id, type, state, created_at, updated_at, heard_at, request, suspension)
		SELECT n || '-' || o, md5(n::text),
			CASE WHEN o = 1 THEN 'provision' WHEN o = 2 THEN 'update' WHEN n % 20 IN (0, 1) THEN 'deprovision' ELSE 'upgradeKyma' END,
			CASE WHEN o = 1 AND n % 100 = 7 THEN 'failed' WHEN o = 3 AND n % 200 = 5 THEN 'in progress' ELSE 'succeeded' END,
			'2026-01-01'::timestamptz + n * interval '1 minute', now(), now(),
			json_build_object('operation', json_build_object('id', n, 'parameters', repeat('x', 800))), o = 3 AND n % 20 = 0
		FROM generate_series(1, $1) AS n, generate_series(1, 3) AS o ORDER BY o, n`, n)
	exec(t, s, `SELECT broker.refresh_runtimes(ARRAY(SELECT id FROM broker.instances))`)
	exec(t, s, `DELETE FROM broker.instances i USING broker.runtimes r WHERE r.instance_id = i.id AND r.state = 'deprovisioned'`)
	exec(t, s, `VACUUM ANALYZE broker.instances, broker.operations, broker.runtimes`)
}

// filters returns typical filters of operators, by name, with the limits and offsets of a page.
func filters(n int) map[string]RuntimeFilter {
	page := func(f RuntimeFilter) RuntimeFilter {
		f.Limit = 100
		return f
	}
	hidden := []RuntimeState{RuntimeSuspended, RuntimeDeprovisioned, RuntimeIncomplete}
	return map[string]RuntimeFilter{
		"account":         page(RuntimeFilter{Accounts: []string{"ga-1"}, Without: hidden}),
		"accounts":        page(RuntimeFilter{Accounts: []string{"ga-1", "ga-2"}, Without: hidden}),
		"subaccount":      page(RuntimeFilter{Subaccounts: []string{"sa-1"}, Without: hidden}),
		"instance":        page(RuntimeFilter{InstanceIDs: []string{"c4ca4238a0b923820dcc509a6f75849b"}}),
		"runtime":         page(RuntimeFilter{RuntimeIDs: []string{"rt-77"}, Without: hidden}),
		"shoot":           page(RuntimeFilter{Shoots: []string{"c-77", "c-78"}, Without: hidden}),
		"region":          page(RuntimeFilter{Regions: []string{"region-3"}, Without: hidden}),
		"regions":         page(RuntimeFilter{Regions: []string{"region-3", "region-4"}, Without: hidden}),
		"plan":            page(RuntimeFilter{Plans: []string{"gcp"}, Without: hidden}),
		"failed":          page(RuntimeFilter{States: []RuntimeState{RuntimeFailed}}),
		"upgrading":       page(RuntimeFilter{States: []RuntimeState{RuntimeUpgrading, RuntimeUpdating}}),
		"suspended":       page(RuntimeFilter{States: []RuntimeState{RuntimeSuspended}}),
		"deprovisioned":   page(RuntimeFilter{States: []RuntimeState{RuntimeDeprovisioned}}),
		"expired":         page(RuntimeFilter{Expired: true, Without: hidden}),
		"plan and region": page(RuntimeFilter{Plans: []string{"azure"}, Regions: []string{"region-7"}, Without: hidden}),
	}
}

func plan(t testing.TB, s *Store, statement string, args ...any) string {
	t.Helper()
	var out strings.Builder
	var lines []string
	require.NoError(t, s.db.SelectContext(t.Context(), &lines, `EXPLAIN `+statement, args...))
	for _, l := range lines {
		fmt.Fprintln(&out, l)
	}
	return out.String()
}

var wholeTable = regexp.MustCompile(`Seq Scan on (instances|operations|runtimes)`)

func TestRuntimes_EachFilter_UsesAnIndex(t *testing.T) {
	t.Parallel()
	s := open(t)
	const n = 5000
	populate(t, s, n)
	check := func(name, statement string, args ...any) {
		if p := plan(t, s, statement, args...); wholeTable.MatchString(p) {
			t.Errorf("%s reads a whole table:\n%s\n%s", name, statement, p)
		}
	}
	for name, f := range filters(n) {
		statement, args := f.page(n)
		check(name, statement, args...)
		statement, args = f.count()
		check("count of "+name, statement, args...)
		f.After = RuntimePosition{CreatedAt: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), InstanceID: "x"}
		statement, args = f.page(n)
		check(name+" after a position", statement, args...)
	}
	every := RuntimeFilter{Limit: 20, Without: []RuntimeState{RuntimeSuspended}}
	statement, args := every.page(n)
	check("all", statement, args...)
	var ids []string
	require.NoError(t, s.db.SelectContext(t.Context(), &ids, statement, args...))
	check("operations", allOperations, postgres.Array(ids))
	check("last operations", lastOperations, postgres.Array(ids))
	check("rows", runtimeRows, postgres.Array(ids))
	check("find", findSQL(), "c-77%", "c-77%", 20)
	check("found", foundRows, postgres.Array(ids))
	if p := plan(t, s, purgeOperations, purgeBatch, time.Unix(9000, 0)); !strings.Contains(p, "Index Scan using operations_instance") {
		t.Errorf("the search for operations to purge reads all:\n%s", p)
	}
	for text, want := range map[string]string{
		"c-770": "shoot c-770", "rt-770": "runtime c-770", "cfee398643cbc3dc5eefc89334cacdc1": "instance c-478", "sa-770": "subaccount c-3270 c-770", "no-such": "",
		"rt%": "", "N\x00": "name more",
	} {
		found, more, err := s.Find(t.Context(), text, 20)
		require.NoError(t, err)
		got := ""
		// The order of equal values is not defined.
		slices.SortFunc(found, func(a, b Found) int { return strings.Compare(a.ShootName, b.ShootName) })
		for i := range found {
			if got == "" {
				got = found[i].Matched
			}
			if !more {
				got += " " + found[i].ShootName
			}
		}
		if more {
			got += " more"
		}
		if got != want {
			t.Errorf("%s: found %q, want %q", text, got, want)
		}
	}
}

func BenchmarkRuntimes(b *testing.B) {
	s := open(b)
	const n = 100_000
	populate(b, s, n)
	all := filters(n)
	hidden := []RuntimeState{RuntimeSuspended, RuntimeDeprovisioned, RuntimeIncomplete}
	all["first page"] = RuntimeFilter{Limit: 100, Without: hidden}
	all["page 500"] = RuntimeFilter{Limit: 100, Offset: 49_900, Without: hidden}
	all["last page"] = RuntimeFilter{Limit: 100, Offset: 89_900, Without: hidden}
	all["plan azure, page 200"] = RuntimeFilter{Limit: 100, Offset: 19_900, Plans: []string{"azure"}, Without: hidden}
	all["every state, page 900"] = RuntimeFilter{Limit: 100, Offset: 89_900}
	for name, f := range all {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _, err := s.Runtimes(b.Context(), f)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/page")
		})
	}
}

// A request is marked as published after the orchestrator received it, possibly after all its work.
func TestBury_PublicationNotMarked_ErasesPerson(t *testing.T) {
	t.Parallel()
	s := open(t)
	record(t, s, sample("i"), did{kind: event.Provision, state: event.Succeeded}, did{kind: event.Deprovision, state: event.InProgress})
	in(t, s, func(ctx context.Context, tx *Tx) error { return tx.Bury(ctx, "i", time.Unix(4000, 0)) })
	require.NoError(t, s.Published(t.Context(), []string{"i-1", "i-2"}, time.Unix(5000, 0)))
	var left, waiting int
	err := s.db.Get(&left, `SELECT count(*) FROM broker.operations o WHERE o::text LIKE '%user@example.org%'`)
	if err != nil || left != 0 {
		t.Errorf("%d operations contain the person, %v", left, err)
	}
	if err := s.db.Get(&waiting, `SELECT count(*) FROM broker.operations WHERE published_at IS NULL`); err != nil || waiting != 0 {
		t.Errorf("%d operations wait to be published, %v", waiting, err)
	}
}

// Defect K. If two instances are removed concurrently, neither counts for the other, so that at least one of them removes the shared
// objects.
func TestNeighbours_RemovedOrSuspendedInstances_DoNotCount(t *testing.T) {
	t.Parallel()
	s := open(t)
	provisioned := did{kind: event.Provision, state: event.Succeeded}
	removed := did{kind: event.Deprovision, state: event.InProgress}
	add := func(id, plan string, seen ...did) {
		i := sample(id)
		i.Context.SubaccountID, i.Plan.Name = "shared", plan
		record(t, s, i, seen...)
	}
	count := func(id string) int {
		t.Helper()
		n, err := s.Neighbours(t.Context(), id, id+"-2")
		require.NoError(t, err)
		return n
	}
	add("one", "aws", provisioned, removed)
	add("own", "own_cluster", provisioned)
	add("suspended", "trial", provisioned, did{kind: event.Deprovision, state: event.Succeeded, suspension: true})
	record(t, s, sample("elsewhere"), provisioned)
	if n := count("one"); n != 0 {
		t.Errorf("the last instance has %d others", n)
	}
	add("two", "aws", provisioned)
	if n := count("one"); n != 1 {
		t.Errorf("%d others, want the one that stays", n)
	}
	// Their runtimes exist, or may exist.
	add("upgrade-failed", "aws", provisioned, did{kind: event.UpgradeKyma, state: event.Failed})
	add("order-failed", "aws", did{kind: event.Provision, state: event.Failed})
	add("removal-failed", "aws", provisioned, did{kind: event.Deprovision, state: event.Failed})
	if n := count("one"); n != 3 {
		t.Errorf("%d others, want those whose upgrade or order has failed, too", n)
	}
	add("three", "aws", provisioned, removed)
	if one, three := count("one"), count("three"); one != 3 || three != 3 {
		t.Errorf("%d and %d others of two that are removed, want those that stay", one, three)
	}
	if _, err := s.Neighbours(t.Context(), "two", "two-1"); err == nil {
		t.Error("an ended operation is answered")
	}
}
