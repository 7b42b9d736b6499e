package store

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRank_SeveralOrchestrators_AreDistinct(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, release, err := b.Rank(t.Context(), 2)
	if err != nil || first != 1 {
		t.Fatalf("rank %d, error %v; want the lowest", first, err)
	}
	second, releaseSecond, err := b.Rank(t.Context(), 2)
	if err != nil || second != 2 {
		t.Fatalf("rank %d, error %v; want the next", second, err)
	}
	defer releaseSecond()
	third, releaseThird, err := b.Rank(t.Context(), 2)
	if !errors.Is(err, errNoRank) || third != 0 {
		t.Errorf("rank %d, error %v; want none", third, err)
	}
	releaseThird()
	release()
	again, releaseAgain, err := b.Rank(t.Context(), 2)
	if err != nil || again != 1 {
		t.Errorf("rank %d, error %v; want the released one", again, err)
	}
	releaseAgain()
	if open := b.db.Stats().InUse; open != 1 {
		t.Errorf("%d connections in use, want only the connection of the second", open)
	}
}

func TestRank_OwnerStopped_IsFree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, release, err := b.Rank(t.Context(), 1)
	require.NoError(t, err)
	defer release()
	if _, err := b.db.Exec(`
SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND classid = $1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, rankLocks); err != nil {
		t.Fatal(err)
	}
	rank, releaseNext, err := b.Rank(t.Context(), 1)
	if err != nil || rank != 1 {
		t.Errorf("rank %d, error %v", rank, err)
	}
	releaseNext()
}
