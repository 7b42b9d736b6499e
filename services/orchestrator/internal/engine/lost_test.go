package engine_test

import (
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestACommandThatWasLostIsSentAgainBeforeItsTimeIsOver(t *testing.T) {
	r := started(t, provision)
	r.now = r.now.Add(5 * time.Second)
	lost := engine.Due{WorkerAlive: true, LostBefore: r.now.Add(-time.Second)}
	r.must(lost)
	r.at("A", 1, 1)
	// Under the same number: the new stream drops it if it has come there already.
	if !r.last.Dispatch || r.s.Dispatch != 1 || !r.s.ExecuteBefore.Equal(r.now.Add(time.Minute)) {
		t.Errorf("dispatch %d until %s, sent %t; want the first, a minute from now", r.s.Dispatch, r.s.ExecuteBefore, r.last.Dispatch)
	}
	// Another orchestrator has noticed the same loss: the command that is out now is younger.
	r.refuse(engine.ErrNotPossible, lost)
	r.succeed()
	r.at("B", 1, 1)
	r.refuse(engine.ErrNotPossible, lost)
}

func TestALossLeavesAloneWhatWaits(t *testing.T) {
	r := started(t, provision)
	r.retry(0)
	r.now = r.now.Add(time.Hour / 2)
	r.refuse(engine.ErrNotPossible, engine.Due{WorkerAlive: true, LostBefore: r.now})
	if r.s.DueAt.IsZero() {
		t.Error("the operation does not wait any more")
	}
}

// A worker that is not seen may still execute it until the limit that it was given.
func TestACommandThatWasLostIsNotSentAgainToNobody(t *testing.T) {
	r := started(t, provision)
	limit := r.s.ExecuteBefore
	r.now = r.now.Add(5 * time.Second)
	r.refuse(engine.ErrNobody, engine.Due{LostBefore: r.now})
	r.refuse(engine.ErrNotPossible, engine.Due{LostBefore: r.now})
	if !r.s.ExecuteBefore.Equal(limit) {
		t.Errorf("the limit is %s, want %s as before", r.s.ExecuteBefore, limit)
	}
	r.must(engine.Due{LostBefore: r.now, WorkerAlive: true})
	r.at("A", 1, 1)
}

// The stream of commands is the old one, and would drop the number that it knows.
func TestACommandWhoseResultAloneWasLostIsSentUnderANewNumber(t *testing.T) {
	r := started(t, provision)
	r.now = r.now.Add(5 * time.Second)
	lost := engine.Due{WorkerAlive: true, LostBefore: r.now, ResultsOnly: true}
	r.must(lost)
	r.at("A", 1, 1)
	if !r.last.Dispatch || r.s.Dispatch != 2 {
		t.Errorf("dispatch %d, sent %t; want the second", r.s.Dispatch, r.last.Dispatch)
	}
	r.refuse(engine.ErrNotPossible, lost)
}

// The limit that the deadline cuts off looks as if the command was sent before the loss.
func TestALossShortBeforeTheDeadlineRaisesTheNumberOnce(t *testing.T) {
	r := started(t, provision)
	r.now = r.s.Deadline.Add(-40 * time.Second)
	r.must(engine.Due{WorkerAlive: true}) // sent again, until the deadline
	sent := r.s.Dispatch
	r.now = r.now.Add(time.Second)
	r.refuse(engine.ErrNotPossible, engine.Due{WorkerAlive: true, LostBefore: r.now, ResultsOnly: true})
	for range 3 {
		r.must(engine.Due{WorkerAlive: true, LostBefore: r.now})
	}
	if !r.last.Dispatch || r.s.Dispatch != sent || !r.s.ExecuteBefore.Equal(r.s.Deadline) {
		t.Errorf("dispatch %d until %s, want %d until the deadline", r.s.Dispatch, r.s.ExecuteBefore, sent)
	}
}

func TestAClockThatIsBehindDoesNotShortenTheLimitOfALostCommand(t *testing.T) {
	r := started(t, provision)
	limit := r.s.ExecuteBefore
	r.now = r.now.Add(-20 * time.Second)
	r.must(engine.Due{WorkerAlive: true, LostBefore: r.now.Add(30 * time.Second)})
	if !r.s.ExecuteBefore.Equal(limit) {
		t.Errorf("the limit is %s, want %s: somebody may execute it until then", r.s.ExecuteBefore, limit)
	}
}

// The result that was lost may have held ids that the next operation needs.
func TestACancellationWaitsForTheResultOfALostCommand(t *testing.T) {
	r := started(t, provision)
	r.must(engine.Cancel{Reason: "deprovisioning"})
	r.now = r.now.Add(5 * time.Second)
	r.must(engine.Due{WorkerAlive: true, LostBefore: r.now})
	r.is(event.InProgress)
	r.succeed()
	r.is(event.Cancelled)
}

func TestALossAfterTheDeadlineEndsTheOperation(t *testing.T) {
	r := started(t, provision)
	r.now = r.now.Add(2 * time.Hour)
	r.must(engine.Due{WorkerAlive: true, LostBefore: r.now})
	r.is(event.Failed)
}
