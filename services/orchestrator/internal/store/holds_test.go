package store

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
)

const (
	holdID      = "0193a3c5-0000-7000-8000-00000000000a"
	otherHoldID = "0193a3c5-0000-7000-8000-00000000000b"
)

func TestHolds_AddListDrop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := []hold.Hold{
		{
			ID: holdID, Scope: hold.Scope{Plan: "azure", Worker: "avs"}, Reason: "outage", CreatedBy: "me", CreatedAt: epoch,
			Until: epoch.Add(time.Hour),
		},
		{
			ID: otherHoldID, Scope: hold.Scope{GlobalAccount: "ga"}, RejectsOrders: true, Reason: "abuse", CreatedBy: "me",
			CreatedAt: epoch.Add(time.Second),
		},
	}
	for i := range want {
		require.NoError(t, b.AddHold(t.Context(), &want[i]))
	}
	list := func(want []hold.Hold) {
		t.Helper()
		got, err := b.Holds(t.Context())
		require.NoError(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("holds (-want +got):\n%s", diff)
		}
	}
	list(want)
	require.NoError(t, b.DropEndedHolds(t.Context(), epoch.Add(time.Hour-time.Millisecond)))
	list(want)
	require.NoError(t, b.DropEndedHolds(t.Context(), epoch.Add(time.Hour)))
	list(want[1:])
	require.NoError(t, b.DropHold(t.Context(), otherHoldID))
	list(want[:0])
	if err := b.DropHold(t.Context(), otherHoldID); !errors.Is(err, ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
}

func TestHolds_HeldOperations_AreFoundAndNotAdmitted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	running, pending, free := b.started(1), b.row(2), b.row(3)
	b.insert(&Change{Row: pending}, &Change{Row: free})
	for _, held := range []struct {
		row *Row
		by  string
	}{{running, holdID}, {pending, otherHoldID}} {
		row := b.load(held.row.Operation.ID)
		state, _, err := engine.Apply(b.p, row.State, engine.Hold{ID: held.by, Cursor: row.Cursor, Dispatch: row.Dispatch}, epoch)
		require.NoError(t, err)
		next := *row
		next.State = state
		_, err = b.Write(t.Context(), []*Change{{Row: &next}})
		require.NoError(t, err)
		if got := b.load(row.Operation.ID); got.HoldID != held.by || !got.HeldSince.Equal(epoch) || got.InFlight() {
			t.Errorf("held by %s since %s, in flight: %t", got.HoldID, got.HeldSince, got.InFlight())
		}
	}
	counts, err := b.HeldBy(t.Context())
	require.NoError(t, err)
	if diff := cmp.Diff(map[string]int{holdID: 1, otherHoldID: 1}, counts); diff != "" {
		t.Errorf("held operations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{free.Operation.ID}, b.next()[event.Update]); diff != "" {
		t.Errorf("operations that may start (-want +got):\n%s", diff)
	}
	status, err := b.SweepStatus(t.Context(), time.Now(), true)
	require.NoError(t, err)
	if !status.Held || !status.NextUnanswered.IsZero() {
		t.Errorf("status %+v, want held operations and no command in flight", status)
	}
	sent, err := b.SentCommands(t.Context(), "00000000-0000-0000-0000-000000000000", 10)
	require.NoError(t, err)
	if len(sent) != 0 {
		t.Errorf("commands %+v, want none", sent)
	}
	require.NoError(t, b.InTx(t.Context(), func(tx *Tx) error {
		ids, err := tx.Releasable(t.Context(), []string{holdID}, 10)
		if diff := cmp.Diff([]string{pending.Operation.ID}, ids); diff != "" {
			t.Errorf("operations to release (-want +got):\n%s", diff)
		}
		return err
	}))
}
