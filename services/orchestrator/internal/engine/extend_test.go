package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func (r *run) wantLimit(at time.Time, extended time.Duration) {
	r.t.Helper()
	if !r.s.ExecuteBefore.Equal(at) || r.s.Extended != extended {
		r.t.Errorf("limit %s, extended by %s; want %s, by %s", r.s.ExecuteBefore, r.s.Extended, at, extended)
	}
}

func TestExtend_RunningStep_MovesItsLimitOnly(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	before := r.s
	r.now = r.now.Add(50 * time.Second)
	r.must(engine.Extend{Cursor: r.s.Cursor, For: 3 * time.Minute})
	r.wantLimit(epoch.Add(50*time.Second+3*time.Minute), 170*time.Second)
	if r.s.Cursor != before.Cursor || r.s.Dispatch != before.Dispatch || r.last.Dispatch || !r.last.Changed || len(r.last.History) > 0 || len(r.last.Facts) > 0 {
		t.Errorf("cursor %d, dispatch %d, effects %+v: want nothing but the limit", r.s.Cursor, r.s.Dispatch, r.last)
	}
	// The limit never moves backwards.
	r.must(engine.Extend{Cursor: r.s.Cursor, For: time.Second})
	r.wantLimit(epoch.Add(50*time.Second+3*time.Minute), 170*time.Second)
	r.now = epoch.Add(70 * time.Second)
	r.reject(engine.ErrNotPossible, engine.Due{WorkerAlive: true})
	r.succeed()
	r.wantPosition("B", 1, 1)
	r.wantLimit(r.now.Add(time.Minute), 0)
}

func TestExtend_Budget_BoundsIt(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.must(engine.Extend{Cursor: r.s.Cursor, For: time.Hour})
	r.wantLimit(epoch.Add(5*time.Minute), 4*time.Minute) // the retry budget of the step
	r.reject(engine.ErrNotPossible, engine.Extend{Cursor: r.s.Cursor, For: time.Hour})
	r.must(engine.Extend{Cursor: r.s.Cursor, For: time.Minute}) // it has that time already
	r.now = r.s.ExecuteBefore
	r.reject(engine.ErrNotPossible, engine.Extend{Cursor: r.s.Cursor, For: time.Hour}) // the limit has passed
	r.must(engine.Due{WorkerAlive: true})
	if e := r.s.Error; e == nil || e.Message != "the worker has not answered within 5m0s" {
		t.Errorf("error %+v", e)
	}
	r.wantLimit(r.now.Add(time.Minute), 0) // one more try, whatever the budget is
	r.reject(engine.ErrNotPossible, engine.Extend{Cursor: r.s.AwaitedCursor(), For: time.Hour})
	r.now = r.s.ExecuteBefore
	r.must(engine.Due{WorkerAlive: true})
	r.wantStatus(event.Failed)
}

// While a stage is repeated, the budget of the current step counts, not that of the step that failed.
func TestExtend_RepeatedStage_UsesTheBudgetOfTheCurrentStep(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.succeed()
	r.retry(0) // B, whose budget ends five minutes from now
	r.sleep(10 * time.Second)
	r.wantPosition("A", 2, 1)
	begun := r.now
	r.must(engine.Extend{Cursor: r.s.Cursor, For: time.Hour})
	r.wantLimit(begun.Add(5*time.Minute), 4*time.Minute)
}

func TestExtend_StepWithoutBudget_IsBoundedByTheDeadline(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	for range 4 {
		r.succeed()
	}
	r.wantPosition("E", 1, 1)
	r.must(engine.Extend{Cursor: r.s.Cursor, For: event.MaxExtension})
	r.wantLimit(epoch.Add(time.Hour), 59*time.Minute)
	r.now = r.s.ExecuteBefore
	r.must(engine.Due{WorkerAlive: true})
	r.wantStatus(event.Failed)
	if !strings.Contains(r.s.Error.Message, "time limit of 1h0m0s") {
		t.Errorf("error %+v", r.s.Error)
	}
}

func TestExtend_OtherCommand_IsRejected(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	stale := r.s.Cursor
	for _, cursor := range []int64{0, stale - 1, stale + 1} {
		r.reject(engine.ErrNotPossible, engine.Extend{Cursor: cursor, For: time.Minute})
	}
	// A command that is sent again keeps its cursor.
	r.now = r.s.ExecuteBefore
	r.must(engine.Due{WorkerAlive: true})
	r.reject(engine.ErrNotPossible, engine.Extend{Cursor: r.s.Cursor, For: 2 * time.Minute})
	r.must(engine.Extend{Cursor: stale, For: 2 * time.Minute})
	r.wantLimit(r.now.Add(2*time.Minute), time.Minute)
	r.succeed()
	r.reject(engine.ErrNotPossible, engine.Extend{Cursor: stale, For: time.Minute})
	r.retry(0)
	r.reject(engine.ErrNotPossible, engine.Extend{Cursor: r.s.Cursor, For: time.Minute}) // it waits
	r.sleep(10 * time.Second)
	r.must(engine.Cancel{Reason: "cancelled by alice"})
	r.reject(engine.ErrNotPossible, engine.Extend{Cursor: r.s.Cursor, For: 10 * time.Minute})
}

// The time of sending still follows from the row.
func TestLoss_ExtendedCommand_IsSentAgainOnce(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.must(engine.Extend{Cursor: r.s.Cursor, For: 4 * time.Minute})
	limit := r.s.ExecuteBefore
	r.now = r.now.Add(5 * time.Second)
	r.reject(engine.ErrNotPossible, engine.Due{WorkerAlive: true, LostBefore: epoch})
	lost := engine.Due{WorkerAlive: true, LostBefore: r.now}
	r.must(lost)
	r.wantLimit(limit, limit.Sub(r.now.Add(time.Minute)))
	if !r.last.Dispatch {
		t.Error("the lost command is not sent again")
	}
	r.reject(engine.ErrNotPossible, lost)
}
