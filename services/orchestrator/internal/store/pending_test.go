package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

// next returns the operations that may start, queue by queue.
func (b *bundle) next() map[event.OperationType][]string {
	b.t.Helper()
	ids := map[event.OperationType][]string{}
	err := b.InTx(b.t.Context(), func(tx *Tx) error {
		waiting, err := tx.PendingQueues(b.t.Context(), limit.Window{Most: 100}, nil)
		if err != nil {
			return err
		}
		var turns []limit.Turn
		for _, w := range waiting {
			turns = append(turns, limit.Turn{Queue: w.Queue, N: 10})
		}
		found, err := tx.Take(b.t.Context(), turns, nil, 100)
		for _, c := range found {
			ids[c.Queue.Type] = append(ids[c.Queue.Type], c.ID)
		}
		return err
	})
	require.NoError(b.t, err)
	return ids
}

// Other orchestrators could start none of the operations that are left if their instances were locked, too.
func TestTake_ManyQueues_LocksOnlyWhatItReturns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var turns []limit.Turn
	for i := range 30 {
		row := b.row(i)
		row.Operation.Context.GlobalAccountID = fmt.Sprint("ga-", i)
		b.insert(&Change{Row: row})
		turns = append(turns, limit.Turn{Queue: limit.QueueOf(&row.Operation), N: 20})
	}
	require.NoError(t, b.InTx(t.Context(), func(tx *Tx) error {
		found, err := tx.Take(t.Context(), turns, nil, 20)
		require.NoError(t, err)
		return b.InTx(t.Context(), func(other *Tx) error {
			left, err := other.Take(t.Context(), turns, nil, 30)
			if len(found) != 20 || len(left) != 10 {
				t.Errorf("%d operations taken, %d left for another orchestrator; want 20 and 10", len(found), len(left))
			}
			return err
		})
	}))
}

// An unsuspension that starts before its suspension would end without a runtime.
func TestPending_MixedTypes_KeepsOrderOfArrival(t *testing.T) {
	t.Parallel()
	b := setup(t)
	changes := make([]*Change, 4)
	for i, kind := range []event.OperationType{event.Deprovision, event.Provision, event.Deprovision, event.Provision} {
		row := b.row(0)
		row.Operation.Type = kind
		changes[i] = &Change{Row: row}
		b.insert(changes[i])
	}
	other := b.row(1)
	other.Operation.Type = event.Provision
	b.insert(&Change{Row: other})

	for i := range changes {
		want := map[event.OperationType][]string{}
		first := changes[i].Row.Operation
		want[first.Type] = []string{first.ID}
		want[event.Provision] = append(want[event.Provision], other.Operation.ID) // operations of other instances are independent
		if diff := cmp.Diff(want, b.next()); diff != "" {
			t.Errorf("%d have ended (-want +got):\n%s", i, diff)
		}
		_, err := b.db.Exec(`UPDATE orchestrator.operations SET state = 'succeeded' WHERE id = $1`, changes[i].Row.Operation.ID)
		require.NoError(t, err)
	}
}

// The queues are found although none of them has a value in common with the next one, and a held or busy operation hides no other one.
func TestPendingQueues_SeveralOperations_AreGrouped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func(instance int, account, plan, region string) *Row {
		row := b.row(instance)
		row.Operation.Context.GlobalAccountID, row.Operation.Plan.Name, row.Operation.Runtime.Region = account, plan, region
		b.insert(&Change{Row: row})
		return row
	}
	first := add(1, "b", "aws", "eu")
	add(2, "b", "aws", "eu")
	held := add(3, "a", "aws", "eu")
	second := add(4, "a", "aws", "eu")
	busy := add(5, "a", "azure", "eu")
	third := add(6, "b", "aws", "")
	add(1, "c", "aws", "eu") // waits for the first operation of its instance
	long := strings.Repeat("x", 3000)
	fourth := add(7, long, "aws", long)
	_, err := b.db.Exec(`UPDATE orchestrator.operations SET hold_id = id WHERE id = $1`, held.Operation.ID)
	require.NoError(t, err)
	_, err = b.db.Exec(`UPDATE orchestrator.instances SET running = $1 WHERE instance_id = 'i-5'`, busy.Operation.ID)
	require.NoError(t, err)

	arrived := func(r *Row) int64 { return b.load(r.Operation.ID).Arrived }
	queue := func(account, plan, region string) limit.Queue {
		return limit.Queue{Type: event.Update, GlobalAccount: account, Plan: plan, Region: region}
	}
	want := []limit.Waiting{
		{Queue: queue("a", "aws", "eu"), First: arrived(second)},
		{Queue: queue("b", "aws", ""), First: arrived(third)},
		{Queue: queue("b", "aws", "eu"), First: arrived(first)},
		{Queue: queue(long[:100], "aws", long[:100]), First: arrived(fourth)},
	}
	require.NoError(t, b.InTx(t.Context(), func(tx *Tx) error {
		got, err := tx.PendingQueues(t.Context(), limit.Window{Most: 100}, nil)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("queues (-want +got):\n%s", diff)
		}
		if err != nil {
			return err
		}
		part, err := tx.PendingQueues(t.Context(), limit.Window{After: want[0].Queue, Most: 2}, nil)
		if diff := cmp.Diff(want[1:3], part); diff != "" {
			t.Errorf("queues after the first one (-want +got):\n%s", diff)
		}
		if err != nil {
			return err
		}
		upgrades, err := tx.PendingQueues(t.Context(), limit.Window{Upgrades: true, Most: 100}, nil)
		if len(upgrades) > 0 {
			t.Errorf("queues of upgrades: %v, want none", upgrades)
		}
		return err
	}))
}
