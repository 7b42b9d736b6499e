package store

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Two transactions that create the same instance must not both find it free.
func TestSaveInstances_CreatedTwice_OneConflicts(t *testing.T) {
	b := setup(t)
	id, running := uuid.NewString(), uuid.NewString()
	take := func(tx *Tx) (*Instance, error) {
		instances, err := tx.LockInstances(t.Context(), []string{id})
		return instances[id], err
	}
	second := make(chan error, 1)
	err := b.InTx(t.Context(), func(tx *Tx) error {
		first, err := take(tx)
		if err != nil || !first.New {
			t.Fatalf("the first sees %+v, %v; want a new instance", first, err)
		}
		seen := make(chan struct{})
		go func() {
			second <- b.InTx(t.Context(), func(tx *Tx) error {
				i, err := take(tx)
				close(seen)
				if err != nil || !i.New {
					return errors.Join(err, errors.New("the second does not see a new instance"))
				}
				i.Running = uuid.NewString()
				return tx.SaveInstances(t.Context(), []*Instance{i})
			})
		}()
		<-seen
		first.Running = running
		return tx.SaveInstances(t.Context(), []*Instance{first})
	})
	errs := []error{err, <-second}
	if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), ErrConflict) {
		t.Fatalf("errors %v; want one, of a conflict", errs)
	}
	err = b.InTx(t.Context(), func(tx *Tx) error {
		i, err := take(tx)
		if err == nil && (i.New || errs[0] == nil && i.Running != running) {
			t.Errorf("the instance is %+v", i)
		}
		return err
	})
	require.NoError(t, err)
}

func TestWrite_FirstTry_LeavesSentAtNull(t *testing.T) {
	b := setup(t)
	r := b.started(1)
	var set bool
	sent := func() bool {
		t.Helper()
		require.NoError(t, b.db.Get(&set, `SELECT sent_at IS NOT NULL FROM orchestrator.operations WHERE id = $1`, r.Operation.ID))
		return set
	}
	if r.SentAt.IsZero() || !r.SentAt.Equal(r.FirstTriedAt) || sent() {
		t.Errorf("sent at %s, first tried at %s, written %t; want the same, not written", r.SentAt, r.FirstTriedAt, set)
	}
	if got := b.load(r.Operation.ID); !got.SentAt.Equal(r.SentAt) {
		t.Errorf("read %s, want %s", got.SentAt, r.SentAt)
	}
	r.SentAt = r.SentAt.Add(time.Second)
	_, err := b.Write(t.Context(), []*Change{{Row: r}})
	require.NoError(t, err)
	if got := b.load(r.Operation.ID); !sent() || !got.SentAt.Equal(r.SentAt) {
		t.Errorf("written %t, read %s, want %s", set, got.SentAt, r.SentAt)
	}
}
