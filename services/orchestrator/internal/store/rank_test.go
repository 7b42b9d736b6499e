package store

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestRank_SeveralOrchestrators_AreDistinct(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.Rank(t.Context(), 2)
	if err != nil || first.Rank() != 1 {
		t.Fatalf("rank %d, error %v; want the lowest", first.Rank(), err)
	}
	second, err := b.Rank(t.Context(), 2)
	if err != nil || second.Rank() != 2 {
		t.Fatalf("rank %d, error %v; want the next", second.Rank(), err)
	}
	defer second.Release(t.Context())
	third, err := b.Rank(t.Context(), 2)
	if !errors.Is(err, errNoRank) || third.Rank() != 0 {
		t.Errorf("rank %d, error %v; want none", third.Rank(), err)
	}
	third.Release(t.Context())
	first.Release(t.Context())
	again, err := b.Rank(t.Context(), 2)
	if err != nil || again.Rank() != 1 {
		t.Errorf("rank %d, error %v; want the released one", again.Rank(), err)
	}
	again.Release(t.Context())
	if open := b.db.Stats().InUse; open != 1 {
		t.Errorf("%d connections in use, want only the connection of the second", open)
	}
}

// terminate ends the connections that hold a rank.
func (b *bundle) terminate(t *testing.T) {
	t.Helper()
	_, err := b.db.Exec(`
SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND classid = $1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, rankLocks)
	require.NoError(t, err)
}

func TestRank_OwnerStopped_IsFree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner, err := b.Rank(t.Context(), 1)
	require.NoError(t, err)
	defer owner.Release(t.Context())
	b.terminate(t)
	next, err := b.Rank(t.Context(), 1)
	if err != nil || next.Rank() != 1 {
		t.Errorf("rank %d, error %v", next.Rank(), err)
	}
	next.Release(t.Context())
}

// wantRanks compares the ranks that the next sweep reads.
func (b *bundle) wantRanks(t *testing.T, want ...int) {
	t.Helper()
	want = append([]int{}, want...)
	b.ranksDue.Store(1)
	status, err := b.SweepStatus(t.Context(), time.Now(), true)
	if diff := cmp.Diff(want, status.Ranks); err != nil || diff != "" {
		t.Errorf("error %v, ranks (-want +got):\n%s", err, diff)
	}
}

func TestRank_Sweep_ReadsTheRanksOfAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	status, err := b.SweepStatus(t.Context(), time.Now(), true)
	if err != nil || status.Ranks != nil {
		t.Errorf("ranks %v, error %v; want none before this process has one", status.Ranks, err)
	}
	first, err := b.Rank(t.Context(), 2)
	require.NoError(t, err)
	b.wantRanks(t, 1)
	second, err := b.Rank(t.Context(), 2)
	require.NoError(t, err)
	b.wantRanks(t, 1, 2)
	if status, err := b.SweepStatus(t.Context(), time.Now(), true); err != nil || status.Ranks != nil {
		t.Errorf("ranks %v, error %v; want none so soon after the last read", status.Ranks, err)
	}
	first.Release(t.Context())
	b.wantRanks(t, 2)
	second.Release(t.Context())
	b.wantRanks(t)
}

func TestRank_ConnectionLost_RenewTakesItAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.Rank(t.Context(), 2)
	require.NoError(t, err)
	defer first.Release(t.Context())
	b.terminate(t)
	b.wantRanks(t)
	require.NoError(t, first.Renew(t.Context()))
	b.wantRanks(t, 1)
	if first.Rank() != 1 {
		t.Errorf("rank %d, want the same as before", first.Rank())
	}
}

func TestRank_TakenMeanwhile_RenewFailsUntilItIsFree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.Rank(t.Context(), 1)
	require.NoError(t, err)
	defer first.Release(t.Context())
	b.terminate(t)
	next, err := b.Rank(t.Context(), 1)
	require.NoError(t, err)
	if err := first.Renew(t.Context()); !errors.Is(err, errNoRank) {
		t.Errorf("error %v, want %v", err, errNoRank)
	}
	next.Release(t.Context())
	require.NoError(t, first.Renew(t.Context()))
	b.wantRanks(t, 1)
}
