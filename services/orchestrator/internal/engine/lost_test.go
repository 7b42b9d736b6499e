package engine_test

import (
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestLoss_Command_IsSentAgainBeforeItsLimit(t *testing.T) {
	r := started(t, provision)
	r.now = r.now.Add(5 * time.Second)
	lost := engine.Due{WorkerAlive: true, LostBefore: r.now.Add(-time.Second)}
	r.must(lost)
	r.wantPosition("A", 1, 1)
	// The number is unchanged, so that the new stream drops a second copy.
	if !r.last.Dispatch || r.s.Dispatch != 1 || !r.s.ExecuteBefore.Equal(r.now.Add(time.Minute)) {
		t.Errorf("dispatch %d until %s, sent %t; want dispatch 1, one minute from now", r.s.Dispatch, r.s.ExecuteBefore, r.last.Dispatch)
	}
	// Another orchestrator detects the same loss: the command in flight was sent after it.
	r.reject(engine.ErrNotPossible, lost)
	r.succeed()
	r.wantPosition("B", 1, 1)
	r.reject(engine.ErrNotPossible, lost)
}

func TestLoss_WaitingOperation_IsUnchanged(t *testing.T) {
	r := started(t, provision)
	r.retry(0)
	r.now = r.now.Add(time.Hour / 2)
	r.reject(engine.ErrNotPossible, engine.Due{WorkerAlive: true, LostBefore: r.now})
	if r.s.DueAt.IsZero() {
		t.Error("the operation no longer waits")
	}
}

// A worker that cannot be reached may still execute the command until its limit.
func TestLoss_NoWorker_CommandIsNotSentAgain(t *testing.T) {
	r := started(t, provision)
	limit := r.s.ExecuteBefore
	r.now = r.now.Add(5 * time.Second)
	r.reject(engine.ErrNoWorker, engine.Due{LostBefore: r.now})
	r.reject(engine.ErrNotPossible, engine.Due{LostBefore: r.now})
	if !r.s.ExecuteBefore.Equal(limit) {
		t.Errorf("limit is %s, want %s as before", r.s.ExecuteBefore, limit)
	}
	r.must(engine.Due{LostBefore: r.now, WorkerAlive: true})
	r.wantPosition("A", 1, 1)
}

// The stream of commands was not lost and would drop a known message id.
func TestLoss_ResultsOnly_RaisesTheDispatchNumber(t *testing.T) {
	r := started(t, provision)
	r.now = r.now.Add(5 * time.Second)
	lost := engine.Due{WorkerAlive: true, LostBefore: r.now, ResultsOnly: true}
	r.must(lost)
	r.wantPosition("A", 1, 1)
	if !r.last.Dispatch || r.s.Dispatch != 2 {
		t.Errorf("dispatch %d, sent %t; want dispatch 2", r.s.Dispatch, r.last.Dispatch)
	}
	r.reject(engine.ErrNotPossible, lost)
}

// The deadline cuts off the limit of the command, but the time of sending still follows from the row.
func TestLoss_ShortlyBeforeDeadline_SendsOnce(t *testing.T) {
	r := started(t, unlimited)
	r.now = r.s.Deadline.Add(-40 * time.Second)
	r.must(engine.Due{WorkerAlive: true}) // sent again, until the deadline
	sent := r.s.Dispatch
	r.now = r.now.Add(time.Second)
	r.reject(engine.ErrNotPossible, engine.Due{WorkerAlive: true, LostBefore: r.now.Add(-time.Second), ResultsOnly: true})
	for _, resultsOnly := range []bool{true, false} {
		lost := engine.Due{WorkerAlive: true, LostBefore: r.now, ResultsOnly: resultsOnly}
		r.must(lost)
		if !r.last.Dispatch || r.s.Dispatch != sent+1 {
			t.Errorf("dispatch %d, sent %t; want dispatch %d", r.s.Dispatch, r.last.Dispatch, sent+1)
		}
		r.wantLimit(r.s.Deadline, r.s.Deadline.Sub(r.now.Add(time.Minute)))
		r.reject(engine.ErrNotPossible, lost)
		r.now = r.now.Add(time.Second)
	}
}

func TestLoss_ClockBehind_DoesNotShortenTheLimit(t *testing.T) {
	r := started(t, provision)
	limit := r.s.ExecuteBefore
	r.now = r.now.Add(-20 * time.Second)
	r.must(engine.Due{WorkerAlive: true, LostBefore: r.now.Add(30 * time.Second)})
	if !r.s.ExecuteBefore.Equal(limit) {
		t.Errorf("limit is %s, want %s: a worker may execute the command until then", r.s.ExecuteBefore, limit)
	}
}

// The lost result may have held ids that the next operation needs.
func TestLoss_CancelRequested_StillAwaitsTheResult(t *testing.T) {
	r := started(t, provision)
	r.must(engine.Cancel{Reason: "deprovisioning"})
	r.now = r.now.Add(5 * time.Second)
	r.must(engine.Due{WorkerAlive: true, LostBefore: r.now})
	r.wantStatus(event.InProgress)
	r.succeed()
	r.wantStatus(event.Cancelled)
}

func TestLoss_AfterDeadline_FailsTheOperation(t *testing.T) {
	r := started(t, provision)
	r.now = r.now.Add(2 * time.Hour)
	r.must(engine.Due{WorkerAlive: true, LostBefore: r.now})
	r.wantStatus(event.Failed)
}
