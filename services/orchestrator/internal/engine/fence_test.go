package engine_test

import (
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestResult_OtherCursor_IsStale(t *testing.T) {
	r := started(t, provision)
	old := r.s.Cursor
	r.reject(engine.ErrStale, engine.Result{Outcome: event.OutcomeSucceeded, Cursor: old + 1})
	r.reject(engine.ErrStale, engine.Result{Outcome: event.OutcomeSucceeded, Cursor: old - 1})
	r.succeed()
	r.reject(engine.ErrStale, engine.Result{Outcome: event.OutcomeSucceeded, Cursor: old})
	r.retry(time.Minute)
	r.reject(engine.ErrStale, engine.Result{Outcome: event.OutcomeSucceeded, Cursor: r.s.Cursor})
	r.sleep(time.Minute)
	r.fail()
	r.reject(engine.ErrStale, engine.Result{Outcome: event.OutcomeSucceeded, Cursor: r.s.Cursor})
}

func TestDue_UnansweredCommand_IsSentAgainWithSameCursor(t *testing.T) {
	r := started(t, provision)
	cursor := r.s.Cursor
	r.now = r.now.Add(time.Minute - 1)
	r.reject(engine.ErrNotPossible, engine.Due{WorkerAlive: true})
	r.sleep(1)
	if _, c := engine.Command(r.p, &r.s); c.Cursor != cursor || c.Dispatch != 2 || !c.ExecuteBefore.Equal(r.now.Add(time.Minute)) || !r.last.Dispatch {
		t.Errorf("command is %+v, dispatched %t", c, r.last.Dispatch)
	}
	r.succeed()
	r.wantPosition("B", 1, 1)
}

func TestDue_NoWorker_SendsNothingAndKeepsTheBudget(t *testing.T) {
	r := started(t, provision)
	for range 100 {
		r.now = r.s.ExecuteBefore
		r.must(engine.Due{WorkerAlive: false})
		if r.last.Dispatch || !r.last.Changed {
			t.Fatalf("effects are %+v", r.last)
		}
	}
	r.now = r.s.ExecuteBefore
	r.must(engine.Due{WorkerAlive: true})
	r.retry(time.Second)
	if !r.s.Waiting() {
		t.Errorf("the time without a worker counts against the budget: %+v", r.s.Error)
	}
}

func TestDue_CommandNeverAnswered_OperationTimesOut(t *testing.T) {
	r := started(t, provision)
	for r.s.Status == event.InProgress {
		r.now = r.s.ExecuteBefore
		r.must(engine.Due{WorkerAlive: true})
	}
	r.wantStatus(event.Failed)
	if got := r.now.Sub(epoch); got != time.Hour {
		t.Errorf("operation timed out after %s, want 1h", got)
	}
}

func TestDue_PendingOperation_IsRejected(t *testing.T) {
	r := newRun(t, load(t, provision))
	r.reject(engine.ErrNotPossible, engine.Due{})
}
