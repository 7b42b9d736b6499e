package store

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// poll records n tries of the first step.
func (b *bundle) poll(c *Change, n int, message string) *Change {
	b.t.Helper()
	for range n {
		r := engine.Result{Outcome: event.OutcomeRetry, Cursor: c.Row.Cursor, Message: message, RetryAfter: time.Second}
		for _, e := range []engine.Event{r, engine.Due{WorkerAlive: true}} {
			at := c.Row.DueAt
			if at.IsZero() {
				at = epoch
			}
			c = b.apply(c.Row, e, at)
			written, err := b.Write(b.t.Context(), []*Change{c})
			require.NoError(b.t, err)
			require.Len(b.t, written, 1)
		}
	}
	return c
}

// foldAll folds the stored history of an operation.
func (b *bundle) foldAll(id string) {
	b.t.Helper()
	err := b.InTx(b.t.Context(), func(tx *Tx) error {
		found, ok, err := tx.Foldable(b.t.Context(), map[string]int64{id: math.MaxInt32}, 1000)
		if err != nil || !ok {
			return fmt.Errorf("locked: %t, %w", ok, err)
		}
		fold := Fold{OperationID: id}
		kept := map[int64]engine.Entry{}
		for _, e := range engine.FoldHistory(found[id]) {
			kept[e.Cursor] = e
			if e.Folded != nil {
				fold.Entries = append(fold.Entries, e)
			}
		}
		for _, e := range found[id] {
			if _, ok := kept[e.Cursor]; !ok {
				fold.Removed = append(fold.Removed, e.Cursor)
			}
		}
		return tx.FoldHistories(b.t.Context(), []Fold{fold})
	})
	require.NoError(b.t, err)
}

func (b *bundle) countRows(id string) (rows int) {
	b.t.Helper()
	require.NoError(b.t, b.db.Get(&rows, `SELECT count(*) FROM orchestrator.history WHERE operation_id = $1`, id))
	return rows
}

func TestHistory_FoldedInTheDatabase_ReadsTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := &Change{Row: b.started(1)}
	id := c.Row.Operation.ID
	for i, message := range []string{"one", "one", "two", "one"} {
		c = b.poll(c, 3, message)
		before, err := b.History(t.Context(), id)
		require.NoError(t, err)
		b.foldAll(id)
		after, err := b.History(t.Context(), id)
		require.NoError(t, err)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("history (-before +after):\n%s", diff)
		}
		if want := []int{2, 2, 3, 4}[i]; b.countRows(id) != want {
			t.Errorf("%d rows, want %d", b.countRows(id), want)
		}
	}
	_, err := b.db.Exec(`UPDATE orchestrator.operations SET state = 'failed', finished_at = $2 WHERE id = $1`, id, epoch)
	require.NoError(t, err)
	before, err := b.History(t.Context(), id)
	require.NoError(t, err)
	b.archive(epoch.Add(time.Hour), 1)
	after, err := b.History(t.Context(), id)
	require.NoError(t, err)
	if diff := cmp.Diff(before, after); diff != "" || after[1].Tries() != 6 {
		t.Errorf("archived history (-before +after):\n%s", diff)
	}
}

func TestHistory_MoreEntriesThanOnePart_IsFolded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.started(1).Operation.ID
	_, err := b.db.Exec(`INSERT INTO orchestrator.history (operation_id, cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind)
		SELECT $1, n, 0, 0, 1, n, $2, $2, 'retry' FROM generate_series(2, 3500) AS n`, id, epoch)
	require.NoError(t, err)
	history, err := b.History(t.Context(), id)
	require.NoError(t, err)
	if len(history) != 2 || history[1].Tries() != 3499 || history[1].Folded.Cursor != 2 {
		t.Errorf("history %+v, want the start and one entry", history)
	}
}

func TestFoldable_AnotherTransactionFolds_IsRejected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.started(1).Operation.ID
	err := b.InTx(t.Context(), func(tx *Tx) error {
		_, ok, err := tx.Foldable(t.Context(), map[string]int64{id: 1}, 10)
		require.NoError(t, err)
		require.True(t, ok)
		return b.InTx(t.Context(), func(second *Tx) error {
			_, ok, err := second.Foldable(t.Context(), map[string]int64{id: 1}, 10)
			if ok {
				t.Error("two transactions fold histories")
			}
			return err
		})
	})
	require.NoError(t, err)
}

func TestFoldable_CommandsAreGranted_IsPossible(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.started(1).Operation.ID
	err := b.InTx(t.Context(), func(tx *Tx) error {
		require.NoError(t, tx.LockLimits(t.Context()))
		return b.InTx(t.Context(), func(second *Tx) error {
			_, ok, err := second.Foldable(t.Context(), map[string]int64{id: 1}, 10)
			if !ok {
				t.Error("histories cannot be folded while commands are granted")
			}
			return err
		})
	})
	require.NoError(t, err)
}

func TestFoldable_UnpublishedFacts_AreLeftOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.poll(&Change{Row: b.started(1)}, 4, "not yet")
	id := c.Row.Operation.ID
	for _, want := range []struct {
		through    int64
		factsAfter any
		entries    int
	}{{100, nil, 5}, {100, 1, 1}, {100, 4, 3}, {4, nil, 3}, {4, 100, 3}, {0, nil, 0}} {
		_, err := b.db.Exec(`UPDATE orchestrator.operations SET facts_after = $2 WHERE id = $1`, id, want.factsAfter)
		require.NoError(t, err)
		err = b.InTx(t.Context(), func(tx *Tx) error {
			found, _, err := tx.Foldable(t.Context(), map[string]int64{id: want.through}, 1000)
			if len(found[id]) != want.entries {
				t.Errorf("%+v: %d entries", want, len(found[id]))
			}
			return err
		})
		require.NoError(t, err)
	}
}
