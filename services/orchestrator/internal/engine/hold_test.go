package engine_test

import (
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

const holdID = "0193a3c5-0000-7000-8000-00000000000a"

// hold holds the operation before its decided command is sent.
func (r *run) hold() {
	r.t.Helper()
	r.must(engine.Hold{ID: holdID, Cursor: r.s.Cursor, Dispatch: r.s.Dispatch})
	if c, at := r.s.Standing(); c != engine.Held || !at.Equal(r.now) || r.last.Dispatch {
		r.t.Fatalf("the operation stands %q since %s with dispatch %t, want held since now without one", c, at, r.last.Dispatch)
	}
}

// release ends the hold after a time.
func (r *run) release(after time.Duration) {
	r.t.Helper()
	r.now = r.now.Add(after)
	r.must(engine.Release{})
}

func TestHold_FirstTry_SendsTheCommandAtTheRelease(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	deadline := r.s.Deadline
	r.hold()
	r.reject(engine.ErrNotPossible, engine.Due{WorkerAlive: true})
	r.reject(engine.ErrStale, engine.Result{Cursor: r.s.Cursor, Outcome: event.OutcomeSucceeded})
	r.release(3 * time.Hour)
	r.wantPosition("A", 1, 1)
	if !r.last.Dispatch || r.s.Dispatch != 1 || !r.s.ExecuteBefore.Equal(r.now.Add(time.Minute)) {
		t.Errorf("dispatch %t, number %d, limit %s: want the first command with its full limit", r.last.Dispatch, r.s.Dispatch, r.s.ExecuteBefore)
	}
	if want := deadline.Add(3 * time.Hour); !r.s.Deadline.Equal(want) {
		t.Errorf("deadline %s, want %s", r.s.Deadline, want)
	}
	if !r.s.FirstTriedAt.Equal(r.now) || !r.s.SentAt.Equal(r.now) {
		t.Errorf("first tried at %s, sent at %s, want both now", r.s.FirstTriedAt, r.s.SentAt)
	}
	r.succeed()
	r.wantPosition("B", 1, 1)
}

func TestHold_Retries_BudgetStopsAndConditionComesBack(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.succeed()
	r.retry(0)
	r.sleep(10 * time.Second) // A again
	r.succeed()
	since := r.s.ConditionSince
	r.hold() // before the second try of B, 10 s after its first
	r.release(time.Hour)
	if c, at := r.s.Standing(); c != engine.Failing || !at.Equal(since) {
		t.Errorf("the operation stands %q since %s, want failing since %s", c, at, since)
	}
	r.now = r.now.Add(4 * time.Minute)
	r.retry(0)
	r.wantStatus(event.InProgress) // 4m10s of 5m
	r.sleep(10 * time.Second)
	r.succeed()
	r.now = r.now.Add(time.Minute)
	r.retry(0)
	r.wantStatus(event.Failed)
}

func TestHold_BudgetOfEarlierStep_Stops(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.succeed()
	r.retry(0)
	r.sleep(10 * time.Second) // A again, while the budget of B runs
	r.hold()
	r.release(time.Hour)
	r.succeed()
	if got, want := r.now.Sub(r.s.FirstTriedAt), 10*time.Second; got != want {
		t.Errorf("%s of the budget of B are used, want %s", got, want)
	}
}

func TestHold_CommandSentAgain_LateResultCounts(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.sleep(time.Minute) // no answer
	r.hold()
	r.now = r.now.Add(time.Hour)
	r.succeed()
	r.wantPosition("B", 1, 1)
	if r.s.Held() {
		t.Error("the operation is held at a step whose command is decided")
	}
}

func TestHold_CommandSentAgain_KeepsItsIdentity(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.sleep(time.Minute)
	cursor := r.s.AwaitedCursor()
	r.hold()
	r.release(time.Hour)
	if r.s.AwaitedCursor() != cursor || r.s.Dispatch != 2 {
		t.Errorf("command %d, dispatch %d, want command %d, dispatch 2", r.s.AwaitedCursor(), r.s.Dispatch, cursor)
	}
}

func TestHold_Cancel_EndsTheOperation(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.hold()
	r.must(engine.Cancel{Reason: "not needed"})
	r.wantStatus(event.Cancelled)
	if r.s.Held() {
		t.Error("an ended operation is held")
	}
}

func TestHold_Skip_MovesToTheNextStep(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	deadline := r.s.Deadline
	r.hold()
	r.now = r.now.Add(time.Hour)
	r.must(engine.SkipStep{Step: "A", By: "op"})
	r.wantPosition("B", 1, 1)
	if want := deadline.Add(time.Hour); r.s.Held() || !r.s.Deadline.Equal(want) {
		t.Errorf("held %t, deadline %s, want %s", r.s.Held(), r.s.Deadline, want)
	}
}

func TestHold_Pending_CannotStart(t *testing.T) {
	t.Parallel()
	r := newRun(t, load(t, provision))
	r.must(engine.Hold{ID: holdID})
	r.reject(engine.ErrNotPossible, engine.Start{})
	r.release(time.Hour)
	if r.last.Dispatch {
		t.Error("a pending operation has sent a command")
	}
	r.must(engine.Start{})
	r.wantPosition("A", 1, 1)
}

func TestHold_OtherHold_TakesOver(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.hold()
	since := r.s.HeldSince
	r.now = r.now.Add(time.Minute)
	r.must(engine.Hold{ID: operationID})
	if r.s.HoldID != operationID || !r.s.HeldSince.Equal(since) {
		t.Errorf("hold %s since %s, want %s since %s", r.s.HoldID, r.s.HeldSince, operationID, since)
	}
}

func TestHold_NotPossible(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.reject(engine.ErrNotPossible, engine.Release{})
	r.reject(engine.ErrNotPossible, engine.Hold{Cursor: r.s.Cursor, Dispatch: 1})
	r.reject(engine.ErrNotPossible, engine.Hold{ID: holdID, Cursor: r.s.Cursor - 1, Dispatch: 1})
	r.reject(engine.ErrNotPossible, engine.Hold{ID: holdID, Cursor: r.s.Cursor, Dispatch: 2})
	r.retry(0)
	r.reject(engine.ErrNotPossible, engine.Hold{ID: holdID, Cursor: r.s.Cursor})
}
