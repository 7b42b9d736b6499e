package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An operation that reaches its deadline of a day was created more than a day ago.
func TestFailedAt_LongOperation_IsCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.started(1).Operation.ID
	_, err := b.db.Exec(`UPDATE orchestrator.operations SET state = 'failed', created_at = $2, finished_at = $3, due_at = NULL WHERE id = $1::uuid`,
		id, epoch.Add(-25*time.Hour), epoch)
	require.NoError(t, err)
	for since, want := range map[time.Time]int{epoch.Add(-24 * time.Hour): 1, epoch.Add(time.Second): 0} {
		got, err := b.FailedAt(t.Context(), since)
		require.NoError(t, err)
		if len(got) != want {
			t.Errorf("%d steps have failed operations since %s, want %d", len(got), since, want)
		}
	}
}
