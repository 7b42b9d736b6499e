package dispatch

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/batch"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// order stores a batch of all operations that a filter selects, and returns it with its operations.
func (b *bundle) order(o batch.Order, f store.Filter) (*store.Batches, *batch.Batch, []batch.Member) {
	b.t.Helper()
	batches := store.NewBatches(b.store, b.db, b.db)
	o.Filter, o.Reason, o.By = "type=update", "test", "me"
	ordered := &batch.Batch{Order: o, ID: uuid.Must(uuid.NewV7()).String(), CreatedAt: epoch}
	require.NoError(b.t, batches.Create(b.t.Context(), ordered, f, func(int) error { return nil }))
	members, err := batches.Next(b.t.Context(), ordered.ID, 100)
	require.NoError(b.t, err)
	return batches, ordered, members
}

func TestRunBatch_LockedRow_HasItsTurnLater(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	ids := b.request(o, "i-1", "i-2")
	batches, ordered, members := b.order(batch.Order{Action: batch.Skip, Step: "One"}, store.Filter{Types: []event.OperationType{event.Update}})
	tx, err := b.db.Beginx()
	require.NoError(t, err)
	_, err = tx.Exec(`SELECT FROM orchestrator.operations WHERE id = $1 FOR UPDATE`, ids[0])
	require.NoError(t, err)
	require.NoError(t, o.RunBatch(t.Context(), ordered, members, epoch))
	require.NoError(t, tx.Rollback())
	left, err := batches.Next(t.Context(), ordered.ID, 100)
	require.NoError(t, err)
	if len(left) != 1 || left[0].OperationID != ids[0] || b.row(ids[0]).Step != 0 || b.row(ids[1]).Step != 1 {
		t.Fatalf("left are %+v, want the locked operation", left)
	}
	require.NoError(t, o.RunBatch(t.Context(), ordered, left, epoch))
	got, err := batches.Get(t.Context(), ordered.ID)
	require.NoError(t, err)
	if got.State != batch.Finished || got.Done != 2 || b.row(ids[0]).Step != 1 {
		t.Errorf("the batch is %+v, want finished with 2 done", got)
	}
}

func TestRunBatch_UnreadableDefinition_FailsOnlyItsOperation(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	ids := b.request(o, "i-1", "i-2")
	b.breakDefinition(ids[0])
	batches, ordered, members := b.order(batch.Order{Action: batch.Skip, Step: "One"}, store.Filter{})
	require.NoError(t, o.RunBatch(t.Context(), ordered, members, epoch))
	results, _, err := batches.Members(t.Context(), ordered.ID, store.BatchMemberFilter{Limit: 10})
	require.NoError(t, err)
	for _, m := range results {
		want := batch.Done
		if m.OperationID == ids[0] {
			want = batch.Failed
		}
		if m.State != want || (want == batch.Failed) != strings.Contains(m.Error, "cannot be read") {
			t.Errorf("operation %s is %s: %q, want %s", m.OperationID, m.State, m.Error, want)
		}
	}
}

func TestRunBatch_PausedOrRepeated_ChangesNothing(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	ids := b.request(o, "i-1", "i-2")
	batches, ordered, members := b.order(batch.Order{Action: batch.Skip, Step: "One"}, store.Filter{})
	_, err := batches.Change(t.Context(), ordered.ID, batch.Paused, epoch)
	require.NoError(t, err)
	if err := o.RunBatch(t.Context(), ordered, members, epoch); !errors.Is(err, batch.ErrChanged) || b.row(ids[0]).Step != 0 {
		t.Errorf("a paused batch has acted: %v", err)
	}
	_, err = batches.Change(t.Context(), ordered.ID, batch.Running, epoch)
	require.NoError(t, err)
	require.NoError(t, o.RunBatch(t.Context(), ordered, members[:1], epoch))
	versions := []int{b.row(ids[0]).Version, b.row(ids[1]).Version}
	// Another orchestrator has read the same operations.
	if err := b.orchestrator().RunBatch(t.Context(), ordered, members, epoch); !errors.Is(err, batch.ErrChanged) {
		t.Errorf("error is %v, want that the batch has changed", err)
	}
	for i, id := range ids {
		if got := b.row(id).Version; got != versions[i] {
			t.Errorf("operation %d was changed again", i)
		}
	}
	require.NoError(t, o.RunBatch(t.Context(), ordered, members[1:], epoch.Add(time.Second)))
	if got := b.row(ids[1]).Step; got != 1 {
		t.Errorf("the second operation is at step %d, want 1", got)
	}
}

func TestRunBatch_RetryWithNewerOperation_IsSkipped(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	old := b.request(o, "i-1")[0]
	b.answer(old, b.row(old).Cursor, nil)
	b.deliver(o, 1)
	b.request(o, "i-1")
	b.exec(`UPDATE orchestrator.operations SET state = 'failed' WHERE id = $1`, old)
	batches, ordered, members := b.order(batch.Order{Action: batch.Retry}, store.Filter{States: []event.OperationState{event.Failed}})
	require.NoError(t, o.RunBatch(t.Context(), ordered, members, epoch))
	results, _, err := batches.Members(t.Context(), ordered.ID, store.BatchMemberFilter{Limit: 10})
	require.NoError(t, err)
	if len(results) != 1 || results[0].State != batch.Skipped || !strings.Contains(results[0].Error, "newer operation") {
		t.Errorf("results %+v, want skipped for the newer operation", results)
	}
}
