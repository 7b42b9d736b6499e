package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// several stores operations in different states: pending, started, retrying, failed.
func several(b *bundle) map[string]*Row {
	b.t.Helper()
	rows := map[string]*Row{}
	for i, name := range []string{"started", "second", "retrying", "failed", "pending", "behind"} {
		r := b.row(i)
		r.CreatedAt = epoch.Add(time.Duration(i) * time.Minute)
		r.Operation.Context = event.Context{GlobalAccountID: "ga-1", SubaccountID: fmt.Sprintf("sa-%d", i)}
		r.Operation.Runtime.ShootName = fmt.Sprintf("c-%d", i)
		r.Operation.Plan.Name = []string{"azure", "aws"}[i%2]
		if name == "behind" {
			r.Operation.InstanceID = rows["started"].Operation.InstanceID
		}
		rows[name] = r
		c := &Change{Row: r}
		if name != "pending" && name != "behind" {
			c = b.apply(r, engine.Start{}, epoch)
		}
		b.insert(c)
		rows[name] = c.Row
	}
	write := func(name string, r engine.Result) {
		r.Cursor, r.StartedAt, r.FinishedAt = rows[name].Cursor, epoch, epoch
		c := b.apply(rows[name], r, epoch)
		_, err := b.Write(b.t.Context(), []*Change{c})
		require.NoError(b.t, err)
		rows[name] = c.Row
	}
	write("second", engine.Result{Outcome: event.OutcomeSucceeded})
	write("retrying", engine.Result{Outcome: event.OutcomeRetry})
	write("failed", engine.Result{Outcome: event.OutcomeFailed, Error: &event.Error{Message: "broken"}})
	return rows
}

func TestOperations_Filter_FindsMatches(t *testing.T) {
	b := setup(t)
	rows := several(b)
	name := func(id string) string {
		for n, r := range rows {
			if r.Operation.ID == id {
				return n
			}
		}
		return id
	}
	one, two := Place{Definition: b.p.Hash(), Stage: 0, Step: 0}, Place{Definition: b.p.Hash(), Stage: 0, Step: 1}
	id := rows["failed"].Operation.ID
	for _, c := range []struct {
		what string
		f    Filter
		want []string
	}{
		{"everything", Filter{}, []string{"behind", "pending", "failed", "retrying", "second", "started"}},
		{"one state", Filter{States: []event.OperationState{event.Failed}}, []string{"failed"}},
		{"two states", Filter{States: []event.OperationState{event.Failed, event.Pending}}, []string{"behind", "pending", "failed"}},
		{"plan", Filter{Plans: []string{"aws"}}, []string{"behind", "failed", "second"}},
		{"type", Filter{Types: []event.OperationType{event.Provision}}, nil},
		{"instance", Filter{InstanceID: "i-0"}, []string{"behind", "started"}},
		{"since", Filter{Since: epoch.Add(4 * time.Minute)}, []string{"behind", "pending"}},
		{"until", Filter{Until: epoch.Add(time.Minute)}, []string{"started"}},
		{"at a step", Filter{At: Places{two}}, []string{"second"}},
		{"at a step of every definition", Filter{At: Places{{Type: event.Update, Step: 1, Always: true}}}, []string{"second"}},
		{"at a step of another type", Filter{At: Places{{Type: event.Provision, Step: 1, Always: true}}}, nil},
		{"at one of two steps", Filter{At: Places{one, {Type: event.Update, Step: 1, Always: true}}}, []string{"retrying", "second", "started"}},
		{"failed at a step", Filter{States: []event.OperationState{event.Failed}, At: Places{one, two}}, []string{"failed"}},
		{"at no step", Filter{At: Places{}}, nil},
		{"at a step of another definition", Filter{At: Places{{Definition: "other", Step: 1}}}, nil},
		{"polling", Filter{Waiting: []operator.WaitingReason{operator.Polling}}, []string{"retrying"}},
		{"no worker", Filter{Waiting: []operator.WaitingReason{operator.NoWorker}, Unserved: Places{two}}, []string{"second"}},
		{"executing", Filter{Waiting: []operator.WaitingReason{operator.Executing}, Unserved: Places{two}}, []string{"started"}},
		{"executing, and every step is served", Filter{Waiting: []operator.WaitingReason{operator.Executing}}, []string{"second", "started"}},
		{"instance busy", Filter{Waiting: []operator.WaitingReason{operator.InstanceBusy}}, []string{"behind"}},
		{"admission", Filter{Waiting: []operator.WaitingReason{operator.Admission}}, []string{"pending"}},
		{"limited", Filter{Waiting: []operator.WaitingReason{operator.Limited}}, nil},
		{"two reasons", Filter{Waiting: []operator.WaitingReason{operator.Admission, operator.Polling}}, []string{"pending", "retrying"}},
		{"a worker and a reason", Filter{At: Places{one, two}, Waiting: []operator.WaitingReason{operator.NoWorker}, Unserved: Places{one}}, []string{"started"}},
		{"the beginning of an id", Filter{Query: id[:35]}, []string{"failed"}},
		{"an id in capitals", Filter{Query: strings.ToUpper(id)}, []string{"failed"}},
		{"more than an id", Filter{Query: id + "0"}, nil},
		{"the beginning of an instance", Filter{Query: "i-4"}, []string{"pending"}},
		{"a subaccount", Filter{Query: "sa-3"}, []string{"failed"}},
		{"the beginning of a subaccount", Filter{Query: "sa-"}, nil},
		{"a global account", Filter{Query: "ga-1", Plans: []string{"azure"}}, []string{"pending", "retrying", "started"}},
		{"the account of a request", Filter{GlobalAccount: "ga-1", Plans: []string{"azure"}}, []string{"pending", "retrying", "started"}},
		{"another account", Filter{GlobalAccount: "ga"}, nil},
		{"another region", Filter{Region: "mars"}, nil},
		{"a shoot", Filter{Query: "c-1"}, []string{"second"}},
		{"what would be a pattern", Filter{Query: "i%4"}, nil},
		{"what no text may hold", Filter{Query: "i-4\x00\xff", InstanceID: "\x00"}, nil},
		{"no such thing", Filter{Query: "nothing"}, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			c.f.Limit = 100
			list, err := b.List(t.Context(), c.f)
			require.NoError(t, err)
			var got []string
			for _, r := range list.Rows {
				got = append(got, name(r.Operation.ID))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
			if list.Total != len(c.want) || list.Capped || list.Next != nil {
				t.Errorf("%d in all, capped %t, next %v", list.Total, list.Capped, list.Next)
			}
			// The pages together have the same operations.
			c.f.Limit = 1
			var walked []string
			for range 10 {
				list, err := b.List(t.Context(), c.f)
				require.NoError(t, err)
				if c.f.After == nil && list.Total != len(c.want) {
					t.Errorf("total on the first page is %d", list.Total)
				}
				for _, r := range list.Rows {
					walked = append(walked, name(r.Operation.ID))
				}
				if c.f.After = list.Next; c.f.After == nil {
					break
				}
			}
			if diff := cmp.Diff(c.want, walked); diff != "" {
				t.Errorf("walked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOperations_Incomplete_IsAState(t *testing.T) {
	b := setup(t)
	rows := several(b)
	for _, name := range []string{"started", "second"} {
		if _, err := b.db.Exec(`UPDATE orchestrator.operations SET state = 'succeeded', not_completed = $2 WHERE id = $1`, rows[name].Operation.ID,
			map[string]any{"started": `{"One"}`, "second": nil}[name]); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		states []event.OperationState
		want   []string
	}{
		{nil, []string{"started"}},
		{[]event.OperationState{event.Succeeded}, []string{"second", "started"}},
		{[]event.OperationState{event.Failed, event.Cancelled}, []string{"failed", "started"}},
	} {
		list, err := b.List(t.Context(), Filter{Incomplete: true, States: c.states, Limit: 10})
		require.NoError(t, err)
		var got []string
		for _, r := range list.Rows {
			for name, row := range rows {
				if row.Operation.ID == r.Operation.ID {
					got = append(got, name)
				}
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" || list.Total != len(c.want) {
			t.Errorf("incomplete or %v: %d in all (-want +got):\n%s", c.states, list.Total, diff)
		}
	}
}

func TestCount_ManyMatches_StopsAtTheLimit(t *testing.T) {
	b := filled(t)
	for _, f := range []Filter{{}, {Types: []event.OperationType{event.Update}}, {Query: "old-"}, {States: []event.OperationState{event.Succeeded}}} {
		f.Limit = 10
		list, err := b.List(t.Context(), f)
		require.NoError(t, err)
		if list.Total != MaxCount || !list.Capped || len(list.Rows) != 10 || list.Next == nil {
			t.Errorf("%+v: %d of %d, capped %t", f, len(list.Rows), list.Total, list.Capped)
		}
	}
}

// Every query of the operator API uses indexes.
func TestList_Sort_OrdersAndPages(t *testing.T) {
	b := setup(t)
	names := map[string]string{}
	for n, r := range several(b) {
		names[r.Operation.ID] = n
	}
	for sort, want := range map[Sort][]string{
		SortNewest: {"behind", "pending", "failed", "retrying", "second", "started"},
		SortOldest: {"started", "second", "retrying", "failed", "pending", "behind"},
		// Within a state, the newest is first.
		SortState: {"failed", "retrying", "second", "started", "behind", "pending"},
	} {
		var got []string
		f := Filter{Sort: sort, Limit: 2}
		for range 3 {
			list, err := b.List(t.Context(), f)
			require.NoError(t, err)
			for _, r := range list.Rows {
				got = append(got, names[r.Operation.ID])
			}
			if f.After == nil && list.Total != 6 {
				t.Errorf("%s: total %d", sort, list.Total)
			}
			if f.After = list.Next; sort.Bounded() {
				if list.Next != nil {
					t.Errorf("%s has a cursor", sort)
				}
				f.Offset += 2
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sort, diff)
		}
	}
	if _, err := b.List(t.Context(), Filter{Sort: SortDuration, Limit: 100}); err != nil {
		t.Error(err)
	}
	list, err := b.List(t.Context(), Filter{Sort: SortAttempts, Limit: 100})
	require.NoError(t, err)
	for i := 1; i < len(list.Rows); i++ {
		if a, b := list.Rows[i-1], list.Rows[i]; max(a.StepAttempt, a.StageAttempt) < max(b.StepAttempt, b.StageAttempt) {
			t.Errorf("%d attempts are before %d", a.StepAttempt, b.StepAttempt)
		}
	}
}

func TestFilter_CommonQueries_UseIndexes(t *testing.T) {
	b := filled(t)
	id := b.ids(`SELECT id::text FROM orchestrator.operations LIMIT 1`)[0]
	places := Places{{Definition: b.p.Hash()}, {Definition: "x", Stage: 1}}
	always := Places{{Type: event.Update, Always: true}, {Type: event.Provision, Stage: 1, Always: true}}
	check := func(name, query string, args []any) {
		t.Helper()
		plan := b.explain(query, args)
		for _, table := range []string{"operations", "history", "requests", "orchestration_members"} {
			if strings.Contains(plan, "Seq Scan on "+table) {
				t.Errorf("%s: the plan reads the whole table %s:\n%s\n%s", name, table, query, plan)
			}
		}
	}
	for _, f := range []Filter{
		{},
		{States: []event.OperationState{event.Failed}},
		{States: []event.OperationState{event.Pending, event.InProgress}},
		{States: []event.OperationState{event.Cancelled}},
		{Incomplete: true},
		{Sort: SortOldest},
		{Sort: SortDuration},
		{Sort: SortAttempts, States: []event.OperationState{event.Failed}},
		{Sort: SortState, Types: []event.OperationType{event.Update}},
		{States: []event.OperationState{event.Failed}, At: always},
		{Incomplete: true, States: []event.OperationState{event.Failed}},
		{Types: []event.OperationType{event.Update}},
		{Types: []event.OperationType{event.Provision}},
		{Plans: []string{"azure"}},
		{Plans: []string{"none"}},
		{InstanceID: "old-7"},
		{Query: "old-7"},
		{Query: id},
		{Query: "abc"},
		{Query: "old-"},
		{Since: time.Now().Add(-time.Hour)},
		{Until: time.Now().Add(-time.Hour)},
		{Orchestration: id},
		{At: places},
		{At: always},
		{Waiting: []operator.WaitingReason{operator.Executing}, Unserved: always},
		{Waiting: []operator.WaitingReason{operator.NoWorker}, Unserved: always},
		{Waiting: []operator.WaitingReason{operator.Polling}},
		{Waiting: []operator.WaitingReason{operator.Failing}, Unserved: places},
		{Waiting: []operator.WaitingReason{operator.NoAnswer}, Unserved: always},
		{Waiting: []operator.WaitingReason{operator.NoWorker}, Unserved: places},
		{Waiting: []operator.WaitingReason{operator.Executing}, Unserved: places},
		{Waiting: []operator.WaitingReason{operator.InstanceBusy}},
		{Waiting: []operator.WaitingReason{operator.Admission}},
		{Waiting: []operator.WaitingReason{operator.Admission, operator.Polling}},
		{Expression: parsed(t, "state = failed AND error.component = edp")},
		{Expression: parsed(t, "state = (failed OR cancelled) AND NOT plan = azure")},
		{Expression: parsed(t, "instance = old-7 OR id = "+id)},
		{Expression: parsed(t, "finished >= 1h AND plan = none")},
		{Expression: parsed(t, "waiting = (failing OR no_worker)"), Unserved: always},
		{Expression: parsed(t, "created >= 1h AND created < 2999-01-01")},
	} {
		for _, after := range []*Position{nil, {CreatedAt: time.Now(), Arrived: 1000, Operation: id}} {
			if f.Limit, f.After = 100, after; after != nil && f.Sort.Bounded() {
				continue
			}
			query, args, err := b.listSQL(t.Context(), &f)
			require.NoError(t, err)
			check(fmt.Sprintf("%+v", f), query, args)
			query, args, err = b.countSQL(t.Context(), &f)
			require.NoError(t, err)
			check(fmt.Sprintf("count %+v", f), atMost(query), args)
		}
	}
	// All operations of the test have just ended.
	marker := mustMark(t, b)
	marker.at = marker.at.Add(time.Hour)
	var ids array
	ids.raw(id)
	var types, created array
	types.text("update")
	created.time(epoch)
	check("changedSQL", changedSQL, changedArgs(marker, marker.xmin, 100))
	check("recordedSQL", recordedSQL, []any{&ids})
	check("historyOfSQL", historyOfSQL, []any{id})
	check("endedSQL", endedSQL, nil)
	check("failedAtSQL", failedAtSQL, []any{time.Now().Add(-24 * time.Hour)})
	check("oldestSQL", oldestSQL, []any{&types, &created})
	check("tallySQL", tallySQL, []any{epoch})
	if _, err := b.Samples(t.Context(), nil, Places{{Definition: b.p.Hash()}}); err != nil {
		t.Error(err)
	}
}

func TestChanges_Marker_ReturnsLaterChanges(t *testing.T) {
	b := setup(t)
	rows := several(b)
	var mark Marker
	// A transaction that started before the marker and ends after it is found.
	tx, err := b.db.Beginx()
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	slow := b.apply(rows["started"], succeeded(rows["started"]), epoch)
	_, err = (&Tx{s: b.Store, tx: tx}).Write(t.Context(), []*Change{slow})
	require.NoError(t, err)
	if mark, err = ParseMarker(mustMark(t, b).String()); err != nil {
		t.Fatal(err)
	}
	find := func(want ...string) {
		t.Helper()
		changed, next, err := b.Changed(t.Context(), mark, 100)
		require.NoError(t, err)
		got := []string{}
		for _, v := range changed {
			got = append(got, v.ID)
		}
		slices.Sort(got)
		wanted := []string{}
		for _, name := range want {
			wanted = append(wanted, rows[name].Operation.ID)
		}
		slices.Sort(wanted)
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("changed (-want +got):\n%s", diff)
		}
		mark = next
	}
	find()
	cancelled := b.apply(rows["retrying"], engine.Cancel{Reason: "no more"}, time.Now())
	_, err = b.Write(t.Context(), []*Change{cancelled})
	require.NoError(t, err)
	find("retrying")
	find()
	require.NoError(t, tx.Commit())
	find("started")
	find()
	added := b.row(77)
	rows["added"] = added
	b.insert(&Change{Row: added})
	find("added")
}

func mustMark(t *testing.T, b *bundle) Marker {
	t.Helper()
	m, err := b.Mark(t.Context())
	require.NoError(t, err)
	return m
}

func TestChanges_MarkerOfOtherDatabase_IsRejected(t *testing.T) {
	b := setup(t)
	m, err := ParseMarker("1795248000000.99999999:99999999:")
	require.NoError(t, err)
	if _, _, err := b.Changed(t.Context(), m, 10); !errors.Is(err, ErrMarker) {
		t.Errorf("error %v, want %v", err, ErrMarker)
	}
	for _, text := range []string{"", "x", "1", "1.", "1.1:2", "1.2:1:", "1.1:2:3", "1.1:5:3,2", "1.a:b:", "-1.1:1:", "1.0:1:", "1.1:1:" + strings.Repeat("1,", 3000)} {
		if _, err := ParseMarker(text); !errors.Is(err, ErrMarker) {
			t.Errorf("%.20q: error %v, want %v", text, err, ErrMarker)
		}
	}
}

func FuzzParseMarker(f *testing.F) {
	f.Add("1795248000000.10:20:11,12")
	f.Add("1.1:1:")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMarker(text)
		if err != nil {
			return
		}
		if again, err := ParseMarker(m.String()); err != nil || again != m {
			t.Errorf("%q is read as %v, and that as %v, %v", text, m, again, err)
		}
	})
}

func TestUUIDRange_Prefix_CoversItsUUIDs(t *testing.T) {
	t.Parallel()
	id := uuid.Must(uuid.NewV7()).String()
	for _, prefix := range []string{id[:1], id[:8], id[:9], id[:24], id, strings.ToUpper(id[:20])} {
		low, high, ok := uuidRange(prefix)
		if !ok || low > id || high < id {
			t.Errorf("%q: %s to %s, %t", prefix, low, high, ok)
		}
	}
	for _, prefix := range []string{"x", id + "0", "0-", "01234567a", "\x00"} {
		if low, high, ok := uuidRange(prefix); ok {
			t.Errorf("%q: %s to %s", prefix, low, high)
		}
	}
}

func TestInsight_Counts_AddUp(t *testing.T) {
	b := setup(t)
	one := TallyKey{Minute: epoch, Type: event.Update, Worker: "alpha", Step: "One", Outcome: "succeeded"}
	old := TallyKey{Minute: epoch.Add(-time.Hour), Type: event.Update, Outcome: "started"}
	for range 2 {
		require.NoError(t, b.AddTally(t.Context(), map[TallyKey]int64{one: 3, old: 1}))
	}
	got, err := b.Tally(t.Context(), old.Minute)
	require.NoError(t, err)
	if diff := cmp.Diff(map[TallyKey]int64{one: 6, old: 2}, got); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	require.NoError(t, b.ForgetTally(t.Context(), epoch))
	if got, err = b.Tally(t.Context(), old.Minute); err != nil || len(got) != 1 {
		t.Errorf("left: %v, %v", got, err)
	}
}
