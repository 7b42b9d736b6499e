package store

import (
	"context"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// A platform unbinds and deletes concurrently: each request waits for the other only while that one works.
func TestRemoveBinding_InstanceLocked_DoesNotDeadlock(t *testing.T) {
	t.Parallel()
	s := open(t)
	i := sample("i")
	record(t, s, i, did{kind: event.Provision, state: event.Succeeded})
	at := time.Unix(4000, 0)
	b := &Binding{
		InstanceID: "i", ID: "b", Expiration: time.Hour, CreatedAt: at, ExpiresAt: at, Claim: "c", ClaimedUntil: at, DueAt: at,
	}
	in(t, s, func(ctx context.Context, tx *Tx) error { return tx.ReserveBinding(ctx, b) })
	removed := make(chan error, 1)
	in(t, s, func(ctx context.Context, tx *Tx) error {
		if _, err := tx.Lock(ctx, "i"); err != nil {
			return err
		}
		go func() {
			_, err := s.RemoveBinding(t.Context(), b, at)
			removed <- err
		}()
		testkit.Eventually(t, time.Minute, "the removal to wait", func() bool {
			var waiting int
			err := s.db.GetContext(ctx, &waiting, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`)
			return err == nil && waiting > 0
		})
		return tx.RevokeBindings(ctx, "i", at)
	})
	if err := <-removed; err != nil {
		t.Error(err)
	}
	var left int
	if err := s.db.Get(&left, `SELECT count(*) FROM broker.bindings`); err != nil || left != 0 {
		t.Errorf("%d bindings are left, %v", left, err)
	}
}

// Brokers have different clocks, and a request may read its clock long before its transaction reads the row.
func TestRevokeBindings_ClockSkew_RevokesBinding(t *testing.T) {
	t.Parallel()
	s := open(t)
	i := sample("i")
	record(t, s, i, did{kind: event.Provision, state: event.Succeeded})
	at := time.Unix(4000, 0)
	b := &Binding{
		InstanceID: "i", ID: "b", Expiration: time.Hour, CreatedAt: at, Claim: "c", ClaimedUntil: at.Add(time.Minute),
		DueAt: at.Add(time.Minute), MadeAt: at.Add(2 * time.Second), ExpiresAt: at.Add(time.Hour), Sealed: "s",
	}
	in(t, s, func(ctx context.Context, tx *Tx) error { return tx.ReserveBinding(ctx, b) })
	if wanted, err := s.FinishBinding(t.Context(), b); err != nil || !wanted {
		t.Fatalf("not finished: %t, %v", wanted, err)
	}
	in(t, s, func(ctx context.Context, tx *Tx) error {
		made, err := tx.Binding(ctx, "i", "b")
		if err == nil && made.Claimed(at) {
			t.Error("the binding still seems to be claimed")
		}
		return err
	})
	in(t, s, func(ctx context.Context, tx *Tx) error { return tx.RevokeBindings(ctx, "i", at) })
	due, err := s.ClaimDueBindings(t.Context(), "d", at.Add(time.Second), at.Add(time.Minute), at.Add(time.Minute), 10)
	if err != nil || len(due) != 1 {
		t.Errorf("%d bindings are due, %v", len(due), err)
	}
}
