package store

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// stands stores operations at their second step, by what has happened there.
func stands(b *bundle) map[string]*Row {
	b.t.Helper()
	rows := map[string]*Row{}
	write := func(name string, e engine.Event, at time.Time) {
		c := b.apply(rows[name], e, at)
		written, err := b.Write(b.t.Context(), []*Change{c})
		require.NoError(b.t, err)
		if len(written) != 1 {
			b.t.Fatalf("%s was not written", name)
		}
		rows[name] = c.Row
	}
	retry := func(name string, failure *event.Error) {
		write(name, engine.Result{Outcome: event.OutcomeRetry, Error: failure, Cursor: rows[name].Cursor}, epoch)
	}
	broken := &event.Error{Component: "ext", Message: "broken"}
	for i, name := range []string{"first", "polls", "polls again", "fails", "fails again", "hangs", "old polls", "old fails"} {
		rows[name] = b.started(100 + i)
		write(name, succeeded(rows[name]), epoch)
	}
	for _, name := range []string{"polls", "polls again", "old polls"} {
		retry(name, nil)
	}
	for _, name := range []string{"fails", "fails again", "old fails"} {
		retry(name, broken)
	}
	for _, name := range []string{"polls again", "fails again"} { // the stage is repeated from its first step
		write(name, engine.Due{WorkerAlive: true}, rows[name].DueAt)
	}
	write("hangs", engine.Due{WorkerAlive: true}, rows["hangs"].ExecuteBefore)
	_, err := b.db.Exec(`UPDATE orchestrator.operations SET condition = NULL, condition_step = NULL, condition_since = NULL WHERE id = ANY($1::uuid[])`,
		"{"+rows["old polls"].Operation.ID+","+rows["old fails"].Operation.ID+"}")
	require.NoError(b.t, err)
	return rows
}

// Filter, census, samples and rows must agree on the reason. Rows of an earlier release have no condition.
func TestReason_EveryQuery_AgreesOnIt(t *testing.T) {
	b := setup(t)
	rows := stands(b)
	want := map[operator.WaitingReason][]string{
		operator.Executing: {"first"}, operator.Polling: {"old polls", "polls", "polls again"},
		operator.Failing: {"fails", "fails again", "old fails"}, operator.NoAnswer: {"hangs"},
	}
	filtered := map[operator.WaitingReason][]string{}
	read := map[operator.WaitingReason][]string{}
	for _, reason := range operator.WaitingReasons() {
		list, err := b.List(t.Context(), Filter{Waiting: []operator.WaitingReason{reason}, Limit: 100})
		require.NoError(t, err)
		for _, r := range list.Rows {
			for name := range rows {
				if rows[name].Operation.ID == r.Operation.ID {
					filtered[reason] = append(filtered[reason], name)
				}
			}
		}
		slices.Sort(filtered[reason])
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		reason := operator.Executing
		if c := b.load(rows[name].Operation.ID).Condition; c != "" {
			reason = operator.WaitingReason(c)
		}
		read[reason] = append(read[reason], name)
	}
	counted, sampled := map[operator.WaitingReason]int{}, map[operator.WaitingReason]int{}
	c, err := b.Census(t.Context())
	require.NoError(t, err)
	for _, g := range c.Groups {
		counted[g.Reason] += g.Count
		if g.ReasonStep != 1 || g.Since.Before(epoch) || g.Since.After(epoch.Add(time.Minute)) {
			t.Errorf("group %+v, want the second step since the start", g)
		}
	}
	samples, err := b.Samples(t.Context(), []PollsSince{{Place: Place{Definition: b.p.Hash(), Step: 1}, Since: epoch}}, nil)
	require.NoError(t, err)
	for _, s := range samples {
		sampled[s.Reason] += s.Count
		if s.ReasonStep != 1 || s.ID == "" || s.Since.IsZero() {
			t.Errorf("sample %+v", s)
		}
	}
	numbers := map[operator.WaitingReason]int{}
	for reason, names := range want {
		numbers[reason] = len(names)
	}
	maps.DeleteFunc(filtered, func(_ operator.WaitingReason, names []string) bool { return len(names) == 0 })
	for what, diff := range map[string]string{
		"filter": cmp.Diff(want, filtered), "rows": cmp.Diff(want, read), "census": cmp.Diff(numbers, counted), "samples": cmp.Diff(numbers, sampled),
	} {
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}

	// Without a worker for the first step, the commands of repeated stages are in flight without a worker.
	list, err := b.List(t.Context(), Filter{
		Waiting: []operator.WaitingReason{operator.NoWorker}, Unserved: Places{{Definition: b.p.Hash()}}, Limit: 100,
	})
	require.NoError(t, err)
	if len(list.Rows) != 2 {
		t.Errorf("%d operations without a worker for their first step, want 2", len(list.Rows))
	}
}

func TestSamples_ShortPolling_IsLeftOut(t *testing.T) {
	b := setup(t)
	stands(b)
	for what, polls := range map[string][]PollsSince{
		"no step":        nil,
		"another step":   {{Place: Place{Definition: b.p.Hash()}, Since: epoch.Add(time.Hour)}},
		"a shorter time": {{Place: Place{Definition: b.p.Hash(), Step: 1}, Since: epoch.Add(-time.Second)}},
	} {
		samples, err := b.Samples(t.Context(), polls, nil)
		require.NoError(t, err)
		for _, s := range samples {
			if s.Reason == operator.Polling {
				t.Errorf("polls of %s select %+v", what, s)
			}
		}
	}
}

// The polling must not hide that the worker is gone.
func TestSamples_PollingWithoutWorker_IsIncluded(t *testing.T) {
	b := setup(t)
	stands(b)
	for step, want := range []int{1, 0} {
		samples, err := b.Samples(t.Context(), nil, Places{{Definition: b.p.Hash(), Step: step}})
		require.NoError(t, err)
		got := 0
		for _, s := range samples {
			if s.Reason == operator.Polling {
				got += s.Count
			}
		}
		if got != want {
			t.Errorf("without a worker for step %d: %d operations that poll, want %d", step, got, want)
		}
	}
}
