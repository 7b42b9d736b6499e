package dispatch

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// notices records notices as "subject cursor: reason".
type notices struct {
	mu   sync.Mutex
	seen []string
}

func (n *notices) Notify(subject string, notice any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := notice.(event.CancelNotice)
	n.seen = append(n.seen, subject+" "+strings.TrimPrefix(event.CommandID("", c.Cursor), "/")+": "+c.Reason)
	return nil
}

func (n *notices) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := slices.Clone(n.seen)
	n.seen = nil
	return seen
}

func TestCancels_CommandNoLongerNeeded_NotifiesWorker(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	var n notices
	o.deps.Notifier = &n
	want := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, n.take()); diff != "" {
			t.Errorf("%s: notices (-want +got):\n%s", what, diff)
		}
	}
	id := b.request(o, "i-1")[0]
	want("start")
	b.answer(id, b.row(id).Cursor, nil)
	b.deliver(o, 1)
	want("result")
	at := b.row(id).Cursor
	number := strings.TrimPrefix(event.CommandID("", at), "/")
	b.clock.Advance(time.Minute)
	_, err := o.Due(t.Context(), true)
	require.NoError(t, err)
	want("no answer: the command is sent again and the late result still counts")
	require.NoError(t, o.Act(t.Context(), id, engine.Cancel{Reason: "cancelled by me"}))
	want("cancel", "keb.worker.alpha.cancel "+number+": cancelled by me")
	require.NoError(t, o.Act(t.Context(), id, engine.Cancel{Reason: "cancelled by you"}))
	want("second cancel", "keb.worker.alpha.cancel "+number+": cancelled by me")
	b.answer(id, at, nil)
	b.deliver(o, 1)
	want("result of one of two dispatches", "keb.worker.alpha.cancel "+number+": another execution of the command has ended")
	if got := b.row(id).Status; got != event.Cancelled {
		t.Errorf("the operation is %s, want cancelled", got)
	}
}

func TestCancels_CommandLeftBehind_NotifiesWorker(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	var n notices
	o.deps.Notifier = &n
	skipped, late := b.request(o, "i-1")[0], b.request(o, "i-2")[0]
	require.NoError(t, o.Act(t.Context(), skipped, engine.SkipStep{Step: "One", By: "me"}))
	if seen := n.take(); len(seen) != 1 || !strings.HasSuffix(seen[0], "skipped by me") {
		t.Errorf("notices %v, want one of the skip", seen)
	}
	b.clock.Advance(time.Hour)
	_, err := o.Due(t.Context(), true)
	require.NoError(t, err)
	for _, id := range []string{skipped, late} {
		if got := b.row(id).Status; got != event.Failed {
			t.Errorf("the operation is %s, want failed", got)
		}
	}
	if seen := n.take(); len(seen) != 2 || !strings.HasSuffix(seen[0], "the time for the step is over") {
		t.Errorf("notices %v, want one for each operation that timed out", seen)
	}
}
