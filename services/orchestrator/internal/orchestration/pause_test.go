package orchestration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
)

func strategy(text string) string {
	return `{"targets": {"include": [{"target": "all"}]}, "strategy": ` + text + `}`
}

// instances returns the names of the first instances.
func instances(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("i-%05d", i)
	}
	return names
}

func (b *bundle) awaitStarted(c *orchestration.Controller, want ...string) {
	b.t.Helper()
	b.await(c, fmt.Sprintf("%v are started", want), func() bool {
		got := b.started()
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

func (b *bundle) awaitState(c *orchestration.Controller, id string, state orchestration.State) *orchestration.Orchestration {
	b.t.Helper()
	b.await(c, "the orchestration is "+string(state), func() bool { return b.get(id).State == state })
	return b.get(id)
}

// rounds waits until the controllers have worked on the orchestration again: a look-up of the targets of another one comes after it.
func (b *bundle) rounds(controllers ...*orchestration.Controller) {
	b.t.Helper()
	for _, c := range controllers {
		o := b.order(`{"targets": {"include": [{"instanceID": "none"}]}}`)
		b.awaitState(c, o.ID, orchestration.Succeeded)
	}
}

func TestPause_RunningOrchestration_StartsNothingUntilResumed(t *testing.T) {
	t.Parallel()
	b := setup(t, 6)
	c, stop := b.controller(nil)
	o := b.order(strategy(`{"parallel": {"workers": 3}}`))
	b.awaitStarted(c, instances(3)...)
	b.operation("i-00001", "pending") // waits behind another operation of its instance

	paused, err := b.store.Pause(t.Context(), o.ID, "jane", b.clock.Now())
	require.NoError(t, err)
	if paused.State != orchestration.Paused || paused.Description != "paused by jane" {
		t.Errorf("orchestration %+v", paused)
	}
	b.end("i-00000")
	b.await(c, "the operation that has not started waits again", func() bool {
		return cmp.Equal(b.stats(o.ID), orchestration.Stats{orchestration.Succeeded: 1, orchestration.InProgress: 1, orchestration.Pending: 4})
	})
	stop()
	// The pause survives the orchestrator.
	c, _ = b.controller(nil)
	b.end("i-00002")
	b.await(c, "the running operation finishes", func() bool { return b.stats(o.ID)[orchestration.Succeeded] == 2 })
	b.rounds(c)
	if diff := cmp.Diff(orchestration.Stats{orchestration.Succeeded: 2, orchestration.Pending: 4}, b.stats(o.ID)); diff != "" {
		t.Errorf("members of the paused orchestration (-want +got):\n%s", diff)
	}
	again, err := b.store.Pause(t.Context(), o.ID, "joe", b.clock.Now())
	require.NoError(t, err)
	if again.Description != "paused by jane" {
		t.Errorf("paused twice: %s", again.Description)
	}

	resumed, err := b.store.Resume(t.Context(), o.ID, "joe", b.clock.Now())
	require.NoError(t, err)
	if resumed.State != orchestration.InProgress || resumed.Pause != nil {
		t.Errorf("orchestration %+v", resumed)
	}
	for _, i := range []string{"i-00003", "i-00004", "i-00005", "i-00001"} {
		b.await(c, i+" is in progress", func() bool {
			return slices.ContainsFunc(b.members(o.ID), func(m *orchestration.Member) bool {
				return m.InstanceID == i && m.State == orchestration.InProgress
			})
		})
		b.end(i)
	}
	if got := b.awaitState(c, o.ID, orchestration.Succeeded); got.Description != "6 succeeded" {
		t.Errorf("description %q", got.Description)
	}
	b.set(func() {
		if len(b.withdrawn) != 1 {
			t.Errorf("withdrawn operations: %v", b.withdrawn)
		}
	})
	if _, err := b.store.Pause(t.Context(), o.ID, "jane", b.clock.Now()); !errors.Is(err, orchestration.ErrNotPossible) {
		t.Errorf("pause of an ended orchestration: %v", err)
	}
}

func TestPause_RetriedNow_StillIgnoresWindow(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	c, _ := b.controller(nil)
	o := b.order(inWindows)
	b.awaitState(c, o.ID, orchestration.InProgress)
	b.clock.Advance(14 * time.Hour)
	b.awaitStarted(c, "i-00000")
	b.operation("i-00000", "failed")
	b.awaitState(c, o.ID, orchestration.Failed)
	b.clock.Advance(3 * time.Hour) // its window is over
	_, err := b.store.Retry(t.Context(), o.ID, nil, true, b.clock.Now())
	require.NoError(t, err)
	b.awaitStarted(c, "i-00000", "i-00000")
	b.operation("i-00000", "pending")

	_, err = b.store.Pause(t.Context(), o.ID, "jane", b.clock.Now())
	require.NoError(t, err)
	b.await(c, "it waits again", func() bool { return cmp.Equal(b.stats(o.ID), orchestration.Stats{orchestration.Pending: 1}) })
	if m := b.members(o.ID)[0]; !m.WindowEnd.IsZero() || m.DueAt.After(b.clock.Now()) {
		t.Errorf("due at %s, window until %s, want now and without a window", m.DueAt, m.WindowEnd)
	}
	_, err = b.store.Resume(t.Context(), o.ID, "jane", b.clock.Now())
	require.NoError(t, err)
	b.awaitStarted(c, "i-00000", "i-00000", "i-00000")
}

func TestPause_BrokerDoesNotAnswer_ClaimedMembersAreNotRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	b.refuse = errors.New("the database is unavailable")
	c, _ := b.controller(nil)
	o := b.order(strategy(`{"parallel": {"workers": 2}}`))
	b.await(c, "they are claimed", func() bool { return b.stats(o.ID)[orchestration.InProgress] == 2 })
	_, err := b.store.Pause(t.Context(), o.ID, "jane", b.clock.Now())
	require.NoError(t, err)
	b.rounds(c) // a round that began before the pause may still request them
	b.set(func() { b.refuse = nil })
	b.rounds(c)
	if got := b.started(); len(got) > 0 {
		t.Errorf("started while paused: %v", got)
	}
	_, err = b.store.Resume(t.Context(), o.ID, "jane", b.clock.Now())
	require.NoError(t, err)
	b.awaitStarted(c, instances(2)...)
}

// The broker has recorded one of two operations, and its answer was lost.
func TestCancel_BrokerDoesNotAnswer_NothingIsRequested(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	b.unanswered = errors.New("the answer is lost")
	c, _ := b.controller(nil)
	o := b.order(strategy(`{"parallel": {"workers": 2}}`))
	b.awaitStarted(c, "i-00000")
	b.set(func() { b.refuse, b.unanswered = errors.New("the database is unavailable"), nil })
	cancelled := b.clock.Now()
	require.NoError(t, b.store.Cancel(t.Context(), o.ID, cancelled))
	b.rounds(c)
	if text := b.get(o.ID).Description; text != "Orchestration was canceled" {
		t.Errorf("the broker was asked while it may still record an earlier request: %s", text)
	}
	b.clock.Advance(time.Minute)
	b.await(c, "the description has the reason", func() bool {
		return b.get(o.ID).Description == "Orchestration was canceled; it cannot end now: ask keb.ask.broker.upgrade: the database is unavailable"
	})
	if at := b.get(o.ID).UpdatedAt; !at.Equal(cancelled) {
		t.Errorf("it was cancelled at %s, want %s", at, cancelled)
	}
	b.set(func() { b.refuse = nil })
	b.await(c, "the other one is cancelled", func() bool {
		return cmp.Equal(b.stats(o.ID), orchestration.Stats{orchestration.InProgress: 1, orchestration.Canceled: 1})
	})
	b.await(c, "the description is updated", func() bool { return b.get(o.ID).Description == "Orchestration was canceled" })
	b.end("i-00000")
	b.awaitState(c, o.ID, orchestration.Canceled)
	if diff := cmp.Diff([]string{"i-00000"}, b.started()); diff != "" {
		t.Errorf("requested from the broker (-want +got):\n%s", diff)
	}
	// What was not requested can be retried.
	r, err := b.store.Retry(t.Context(), o.ID, nil, true, b.clock.Now())
	require.NoError(t, err)
	if len(r.New) != 1 || r.New[0].InstanceID != "i-00001" {
		t.Errorf("retried: %+v", r.New)
	}
}

// A round requests 100 operations at a time.
func TestCancel_DuringRequests_EndsTheRound(t *testing.T) {
	t.Parallel()
	b := setup(t, 150)
	var o *orchestration.Orchestration
	b.onUpgrade = func() {
		if err := b.store.Cancel(context.Background(), o.ID, epoch); err != nil {
			t.Error(err)
		}
	}
	o = b.order(strategy(`{"parallel": {"workers": 150}}`))
	c, _ := b.controller(nil)
	b.await(c, "100 are requested", func() bool { return len(b.started()) == 100 })
	b.clock.Advance(time.Minute)
	b.await(c, "the others are cancelled", func() bool {
		return cmp.Equal(b.stats(o.ID), orchestration.Stats{orchestration.InProgress: 100, orchestration.Canceled: 50})
	})
	if n := len(b.started()); n != 100 {
		t.Errorf("%d operations were requested, want 100", n)
	}
}

func TestPause_Scheduled_DoesNotStartAtItsTime(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	c, _ := b.controller(nil)
	o := b.order(strategy(`{"schedule": "2026-11-21T09:00:00Z"}`))
	b.await(c, "the targets are known", func() bool { return len(b.members(o.ID)) == 1 })
	_, err := b.store.Pause(t.Context(), o.ID, "jane", b.clock.Now())
	require.NoError(t, err)
	b.clock.Advance(2 * time.Hour)
	b.rounds(c)
	if got := b.get(o.ID); got.State != orchestration.Paused || len(b.started()) > 0 {
		t.Errorf("orchestration %+v, started %v", got, b.started())
	}
	_, err = b.store.Resume(t.Context(), o.ID, "jane", b.clock.Now())
	require.NoError(t, err)
	b.awaitStarted(c, "i-00000")
}

// Two controllers work, and one after the other is killed in each state.
func TestCanary_TwoControllersAndKills_NeverExceedItsSize(t *testing.T) {
	t.Parallel()
	const everything, size = 12, 3
	b := setup(t, everything)
	first, stopFirst := b.controller(nil)
	second, stopSecond := b.controller(nil)
	o := b.order(strategy(`{"parallel": {"workers": 5}, "canary": {"size": 3}}`))
	b.awaitStarted(first, instances(size)...)
	b.rounds(first, second)
	stopFirst() // while the canary runs
	if got := b.started(); len(got) != size {
		t.Errorf("the canary has %v", got)
	}
	for _, i := range instances(size) {
		b.end(i)
	}
	waiting := b.awaitState(second, o.ID, orchestration.Paused)
	if waiting.Description != "waiting for approval of the canary: 3 succeeded" || waiting.Pause.Reason != operator.PausedForApproval {
		t.Errorf("orchestration %+v", waiting)
	}
	stopSecond() // while it waits for approval
	first, stopFirst = b.controller(nil)
	second, _ = b.controller(nil)
	b.rounds(first, second)
	if got := b.started(); len(got) != size {
		t.Errorf("started without approval: %v", got)
	}
	if _, err := b.store.Resume(t.Context(), o.ID, "jane", b.clock.Now()); !errors.Is(err, orchestration.ErrNotPossible) {
		t.Errorf("resume instead of approve: %v", err)
	}
	_, err := b.store.Approve(t.Context(), o.ID, "jane", b.clock.Now())
	require.NoError(t, err)
	b.awaitStarted(first, instances(size+5)...)
	stopFirst()
	for _, i := range instances(everything)[size:] {
		b.await(second, i+" is started", func() bool { return slices.Contains(b.started(), i) })
		b.end(i)
	}
	b.awaitState(second, o.ID, orchestration.Succeeded)
	for _, m := range b.members(o.ID) {
		if canary := slices.Contains(instances(size), m.InstanceID); m.Canary != canary {
			t.Errorf("member %s: canary %t", m.InstanceID, m.Canary)
		}
	}
	if _, err := b.store.Approve(t.Context(), o.ID, "jane", b.clock.Now()); !errors.Is(err, orchestration.ErrNotPossible) {
		t.Errorf("second approval: %v", err)
	}
}

func TestCanary_ThenSuccess_ContinuesOnlyWithoutFailures(t *testing.T) {
	t.Parallel()
	b := setup(t, 4)
	c, _ := b.controller(nil)
	o := b.order(strategy(`{"parallel": {"workers": 4}, "canary": {"size": 2, "then": "success"}}`))
	b.awaitStarted(c, instances(2)...)
	b.end("i-00000")
	b.operation("i-00001", "failed")
	if got := b.awaitState(c, o.ID, orchestration.Paused); got.Description != "waiting for approval of the canary: 1 succeeded, 1 failed" {
		t.Errorf("description %q", got.Description)
	}
	// The failed operation is repeated, as a part of the canary, when it is approved: nothing is started before.
	r, err := b.store.Retry(t.Context(), o.ID, nil, true, b.clock.Now())
	require.NoError(t, err)
	if len(r.New) != 1 || r.State != orchestration.Paused {
		t.Errorf("retries %+v", r)
	}
	b.rounds(c)
	if got := b.started(); len(got) != 2 {
		t.Errorf("started while it waits: %v", got)
	}

	good := b.order(strategy(`{"parallel": {"workers": 4}, "canary": {"size": 2, "then": "success"}}`))
	b.await(c, "the canary is started", func() bool { return b.stats(good.ID)[orchestration.InProgress] == 2 })
	b.end("i-00000")
	b.end("i-00001")
	b.await(c, "the others are started", func() bool { return b.stats(good.ID)[orchestration.InProgress] == 2 && b.get(good.ID).CanaryPassed })
}

func TestMaxFailures_Exceeded_PausesWithReason(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	c, stop := b.controller(nil)
	o := b.order(strategy(`{"parallel": {"workers": 2}, "maxFailures": "15%"}`))
	b.awaitStarted(c, instances(2)...)
	b.operation("i-00000", "failed")
	b.awaitStarted(c, instances(3)...)
	b.operation("i-00001", "failed")
	want := "paused when 2 operations had failed, maxFailures allows 1 (15% of 10)"
	if got := b.awaitState(c, o.ID, orchestration.Paused); got.Description != want || got.Pause.Reason != operator.PausedByFailures {
		t.Errorf("orchestration %+v, want %s", got, want)
	}
	stop()
	c, _ = b.controller(nil)
	b.rounds(c)
	if got := b.started(); len(got) != 3 {
		t.Errorf("started: %v", got)
	}
	failures, err := b.store.Failures(t.Context(), o.ID)
	require.NoError(t, err)
	if len(failures) != 1 || failures[0].Count != 2 || failures[0].Message != "ext is broken: status 503" {
		t.Errorf("failures %+v", failures)
	}
	// A resume accepts these failures, and one more.
	_, err = b.store.Resume(t.Context(), o.ID, "jane", b.clock.Now())
	require.NoError(t, err)
	b.awaitStarted(c, instances(4)...)
	b.operation("i-00002", "failed")
	b.awaitStarted(c, instances(5)...)
	b.operation("i-00003", "failed")
	want += "; 2 earlier failures were accepted"
	if got := b.awaitState(c, o.ID, orchestration.Paused); got.Description != want {
		t.Errorf("description %q, want %q", got.Description, want)
	}
	// A paused orchestration can be cancelled, and a cancelled one retried.
	require.NoError(t, b.store.Cancel(t.Context(), o.ID, b.clock.Now()))
	b.end("i-00004")
	b.awaitState(c, o.ID, orchestration.Canceled)
	r, err := b.store.Retry(t.Context(), o.ID, nil, true, b.clock.Now())
	require.NoError(t, err)
	if len(r.New) != 9 || len(r.Old) != 0 {
		t.Errorf("%d are retried, %v are not", len(r.New), r.Old)
	}
	b.awaitState(c, o.ID, orchestration.InProgress)
}
