package census_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/census"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// fakeStore implements Counts.
type fakeStore struct {
	counts  map[store.TallyKey]int64
	writes  int
	forgot  []time.Time
	broken  error
	between func()
}

func (f *fakeStore) AddTally(_ context.Context, counts map[store.TallyKey]int64) error {
	f.writes++
	if f.between != nil {
		f.between()
	}
	if f.broken != nil {
		return f.broken
	}
	for k, n := range counts {
		f.counts[k] += n
	}
	return nil
}

func (f *fakeStore) ForgetTally(_ context.Context, before time.Time) error {
	f.forgot = append(f.forgot, before)
	return nil
}

func (f *fakeStore) Tally(context.Context, time.Time) (map[store.TallyKey]int64, error) {
	return maps.Clone(f.counts), f.broken
}

var (
	epoch = time.Date(2026, 11, 21, 8, 0, 30, 0, time.UTC)
	begun = dispatch.Transition{Type: event.Update, State: event.InProgress, Started: true}
	ended = dispatch.Transition{Type: event.Update, State: event.Failed, Ended: true, Executions: []dispatch.Execution{
		{Worker: "alpha", Step: "One", Outcome: event.OutcomeSucceeded, Took: 40 * time.Millisecond},
		{Worker: "alpha", Step: "Two", Outcome: event.OutcomeFailed},
		{Worker: process.WorkerOrchestrator, Step: "One", Outcome: event.OutcomeSkipped},
	}}
	minute  = epoch.Truncate(time.Minute)
	started = store.TallyKey{Minute: minute, Type: event.Update, Outcome: "started"}
	failed  = store.TallyKey{Minute: minute, Type: event.Update, Outcome: "failed"}
	one     = store.TallyKey{Minute: minute, Type: event.Update, Worker: "alpha", Step: "One", Outcome: "succeeded"}
	two     = store.TallyKey{Minute: minute, Type: event.Update, Worker: "alpha", Step: "Two", Outcome: "failed"}
)

func setup() (*census.Tally, *fakeStore, *testkit.Clock) {
	f := &fakeStore{counts: map[store.TallyKey]int64{}}
	clock := testkit.NewClock(epoch)
	return census.NewTally(time.Hour, f, clock.Now, slog.New(slog.DiscardHandler)), f, clock
}

func since(t *testing.T, tl *census.Tally, at time.Time, want map[store.TallyKey]int64) {
	t.Helper()
	got, err := tl.Since(t.Context(), at)
	require.NoError(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// measured adds the counters of the durations of n executions, which took ms milliseconds together.
func measured(counts map[store.TallyKey]int64, k store.TallyKey, n, ms int64) {
	k.Outcome = store.TallyTimed
	counts[k] = n
	k.Outcome = store.TallyTook
	counts[k] = ms
}

func TestTally_Commits_AreCounted(t *testing.T) {
	t.Parallel()
	tl, f, clock := setup()
	tl.Committed([]dispatch.Transition{begun, begun, ended})
	skipped := store.TallyKey{Minute: minute, Type: event.Update, Worker: process.WorkerOrchestrator, Step: "One", Outcome: "skipped"}
	want := map[store.TallyKey]int64{started: 2, failed: 1, one: 1, two: 1, skipped: 1}
	measured(want, one, 1, 40)
	measured(want, two, 1, 1)
	since(t, tl, minute, want) // includes unwritten counters
	tl.Flush(t.Context())
	since(t, tl, minute, want)
	if diff := cmp.Diff(want, f.counts); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	tl.Flush(t.Context())
	if f.writes != 1 {
		t.Errorf("%d writes, want no write without new counters", f.writes)
	}
	clock.Advance(time.Minute)
	tl.Committed([]dispatch.Transition{begun})
	tl.Flush(t.Context())
	next := started
	next.Minute = minute.Add(time.Minute)
	if f.counts[next] != 1 || f.counts[started] != 2 {
		t.Errorf("counters are %v, want one start in the next minute", f.counts)
	}
	if len(f.forgot) != 1 || !f.forgot[0].Equal(epoch.Add(-25*time.Hour)) {
		t.Errorf("deleted counters before %v, want one deletion of counters older than 25h", f.forgot)
	}
}

func TestTally_RetriesWithoutError_AreCountedApart(t *testing.T) {
	t.Parallel()
	tl, _, _ := setup()
	polled, retried := one, one
	polled.Outcome, retried.Outcome = census.Polled, "retry"
	tl.Committed([]dispatch.Transition{{Type: event.Update, State: event.InProgress, Executions: []dispatch.Execution{
		{Worker: "alpha", Step: "One", Outcome: event.OutcomeRetry},
		{Worker: "alpha", Step: "One", Outcome: event.OutcomeRetry, Polled: true},
		{Worker: "alpha", Step: "One", Outcome: event.OutcomeRetry, Polled: true},
	}}})
	want := map[store.TallyKey]int64{retried: 1, polled: 2}
	measured(want, one, 3, 3)
	since(t, tl, minute, want)
}

func TestTally_WriteFails_IsRetried(t *testing.T) {
	t.Parallel()
	tl, f, _ := setup()
	tl.Committed([]dispatch.Transition{begun})
	f.broken = errors.New("the database is gone")
	f.between = func() { tl.Committed([]dispatch.Transition{begun}) } // meanwhile
	tl.Flush(t.Context())
	f.broken, f.between = nil, nil
	tl.Flush(t.Context())
	if diff := cmp.Diff(map[store.TallyKey]int64{started: 2}, f.counts); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}
