package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// limit makes the decided command wait for a limit.
func (r *run) limit(queue string) {
	r.t.Helper()
	r.must(engine.Park{Queue: queue, Cursor: r.s.Cursor, Dispatch: r.s.Dispatch})
	if c, _ := r.s.Standing(); c != engine.Limited || r.s.Queue != queue || r.last.Dispatch {
		r.t.Fatalf("the operation stands %q in queue %q with dispatch %t, want limited by %s", c, r.s.Queue, r.last.Dispatch, queue)
	}
}

// grant sends the command after a time.
func (r *run) grant(after time.Duration, keys ...string) {
	r.t.Helper()
	r.now = r.now.Add(after)
	r.must(engine.Grant{Keys: keys})
}

func TestLimit_FirstTry_SendsTheCommandWhenGranted(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	deadline, cursor := r.s.Deadline, r.s.Cursor
	r.limit("ias")
	if _, since := r.s.Standing(); !since.Equal(r.now) {
		t.Errorf("limited since %s, want now", since)
	}
	r.reject(engine.ErrNotPossible, engine.Due{WorkerAlive: true})
	r.reject(engine.ErrNotPossible, engine.Due{WorkerAlive: true, LostBefore: r.now.Add(time.Hour)})
	r.reject(engine.ErrNotPossible, engine.Release{})
	r.reject(engine.ErrStale, engine.Result{Cursor: r.s.Cursor, Outcome: event.OutcomeSucceeded})
	r.now = r.now.Add(time.Minute)
	r.limit("edp") // the limit ias has room now, and edp has none
	if _, since := r.s.Standing(); !since.Equal(r.now.Add(-time.Minute)) {
		t.Errorf("limited since %s in another queue, want since a minute ago", since)
	}
	r.grant(time.Minute, "ias", "edp")
	r.wantPosition("A", 1, 1)
	if !r.last.Dispatch || r.s.Dispatch != 1 || r.s.Cursor != cursor || !r.s.ExecuteBefore.Equal(r.now.Add(time.Minute)) {
		t.Errorf("dispatch %t, number %d, limit %s: want the first command with its full limit", r.last.Dispatch, r.s.Dispatch, r.s.ExecuteBefore)
	}
	if !r.s.Deadline.Equal(deadline) || !r.s.FirstTriedAt.Equal(r.now) || !r.s.SentAt.Equal(r.now) || !slices.Equal(r.s.Granted, []string{"ias", "edp"}) {
		t.Errorf("deadline %s, first tried %s, sent %s, counts in %v", r.s.Deadline, r.s.FirstTriedAt, r.s.SentAt, r.s.Granted)
	}
	r.succeed()
	r.wantPosition("B", 1, 1)
	if r.s.Granted != nil {
		t.Errorf("the next command counts in %v, want none", r.s.Granted)
	}
}

func TestLimit_Retries_BudgetStopsAndConditionComesBack(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.succeed()
	r.retry(0)
	r.sleep(10 * time.Second) // A again
	r.limit("ias")
	r.grant(30*time.Minute, "ias")
	r.succeed()
	since := r.s.ConditionSince
	r.limit("ias") // before the second try of B, 10 s after its first
	r.grant(20*time.Minute, "ias")
	if c, at := r.s.Standing(); c != engine.Failing || !at.Equal(since) {
		t.Errorf("the operation stands %q since %s, want failing since %s", c, at, since)
	}
	r.now = r.now.Add(4 * time.Minute)
	r.retry(0)
	r.wantStatus(event.InProgress) // 4m10s of 5m
}

func TestLimit_NoAnswer_KeepsItsSlot(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.limit("ias")
	r.grant(0, "ias")
	cursor := r.s.Cursor
	r.now = r.s.ExecuteBefore
	r.must(engine.Due{WorkerAlive: true})
	if !r.last.Dispatch || !slices.Equal(r.s.Granted, []string{"ias"}) {
		t.Errorf("dispatch %t, counts in %v, want the command sent again in its slot", r.last.Dispatch, r.s.Granted)
	}
	r.must(engine.Result{Cursor: cursor, Outcome: event.OutcomeSucceeded})
	r.wantPosition("B", 1, 1)
}

func TestLimit_SentBefore_LateResultCounts(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	cursor := r.s.Cursor
	r.now = r.s.ExecuteBefore
	r.must(engine.Due{WorkerAlive: true})
	r.limit("ias") // it was applied after the first dispatch
	first := r.s.FirstTriedAt
	r.now = r.now.Add(time.Minute)
	r.must(engine.Result{Cursor: cursor, Outcome: event.OutcomeRetry})
	if r.s.Limited() || !r.s.Waiting() || !r.s.FirstTriedAt.Equal(first.Add(time.Minute)) {
		t.Errorf("limited %t, waiting %t, first tried %s: want the result applied and the budget moved", r.s.Limited(), r.s.Waiting(), r.s.FirstTriedAt)
	}
}

func TestLimit_Deadline_FailsTheOperation(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.limit("ias")
	r.now = r.s.Deadline
	r.reject(engine.ErrNotPossible, engine.Grant{Keys: []string{"ias"}})
	r.must(engine.Due{})
	r.wantStatus(event.Failed)
	if e := r.s.Error; e.Reason != "err_keb_timeout" || !strings.Contains(e.Message, "has waited for the limit ias for 1h0m0s") {
		t.Errorf("error %+v, want one that names the limit", e)
	}
}

func TestLimit_Actions_EndIt(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.limit("ias")
	r.must(engine.SkipStep{Step: "A", By: "me"})
	r.wantPosition("B", 1, 1)
	r.limit("ias")
	r.must(engine.Cancel{Reason: "not wanted"})
	r.wantStatus(event.Cancelled)
}

func TestLimit_Hold_TakesOver(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	deadline := r.s.Deadline
	r.limit("ias")
	r.now = r.now.Add(10 * time.Minute)
	r.hold()
	if r.s.Limited() || !r.s.DueAt.IsZero() {
		t.Errorf("limited by %q, due at %s, want held", r.s.Queue, r.s.DueAt)
	}
	r.release(10 * time.Minute)
	r.limit("ias")
	r.grant(10*time.Minute, "ias")
	if !r.s.FirstTriedAt.Equal(r.now) || !r.s.Deadline.Equal(deadline.Add(10*time.Minute)) {
		t.Errorf("first tried %s, deadline %s: want now, and the deadline moved by the hold only", r.s.FirstTriedAt, r.s.Deadline)
	}
	r.must(engine.Hold{ID: holdID, Cursor: r.s.Cursor, Dispatch: r.s.Dispatch}) // the command was never published
	if r.s.Granted != nil {
		t.Errorf("a held command counts in %v", r.s.Granted)
	}
}

func TestLimit_GrantInFlight_CountsTheCommand(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	before := r.s.ExecuteBefore
	r.now = r.now.Add(time.Second)
	r.must(engine.Grant{Keys: []string{"ias"}})
	if r.last.Dispatch || !r.s.ExecuteBefore.Equal(before) || !slices.Equal(r.s.Granted, []string{"ias"}) {
		t.Errorf("dispatch %t, limit %s, counts in %v", r.last.Dispatch, r.s.ExecuteBefore, r.s.Granted)
	}
	if err := r.apply(engine.Grant{Keys: []string{"ias"}}); err != nil || r.last.Changed {
		t.Errorf("error %v, changed %t, want no change", err, r.last.Changed)
	}
	r.reject(engine.ErrNotPossible, engine.Park{Queue: "ias", Cursor: r.s.Cursor - 1, Dispatch: 1})
	r.reject(engine.ErrNotPossible, engine.Park{Cursor: r.s.Cursor, Dispatch: 1})
	r.retry(0)
	r.reject(engine.ErrNotPossible, engine.Park{Queue: "ias", Cursor: r.s.Cursor})
	r.reject(engine.ErrNotPossible, engine.Grant{})
}
