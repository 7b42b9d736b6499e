package store

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
)

// next returns the pending operations of a type that may start.
func (b *bundle) next(kind event.OperationType) []string {
	b.t.Helper()
	var ids []string
	err := b.InTx(b.t.Context(), func(tx *Tx) error {
		found, err := tx.Pending(b.t.Context(), kind, 10)
		for _, c := range found {
			ids = append(ids, c.ID)
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return ids
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
		for _, kind := range []event.OperationType{event.Provision, event.Deprovision} {
			var want []string
			if changes[i].Row.Operation.Type == kind {
				want = append(want, changes[i].Row.Operation.ID)
			}
			if kind == event.Provision {
				want = append(want, other.Operation.ID) // operations of other instances are independent
			}
			if diff := cmp.Diff(want, b.next(kind)); diff != "" {
				t.Errorf("%d have ended, %s may start (-want +got):\n%s", i, kind, diff)
			}
			types, err := b.PendingTypes(t.Context(), event.OperationTypes())
			if err != nil || slices.Contains(types, kind) != (len(want) > 0) {
				t.Errorf("%d have ended: types %v, %v", i, types, err)
			}
		}
		if _, err := b.db.Exec(`UPDATE orchestrator.operations SET state = 'succeeded' WHERE id = $1`, changes[i].Row.Operation.ID); err != nil {
			t.Fatal(err)
		}
	}
}
