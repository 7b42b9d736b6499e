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
	if !r.last.Dispatch || r.s.Dispatch != 2 || !r.s.ExecuteBefore.Equal(r.now.Add(time.Minute)) {
		t.Errorf("dispatch %d until %s, sent %t; want the second, a minute from now", r.s.Dispatch, r.s.ExecuteBefore, r.last.Dispatch)
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

func TestACommandThatWasLostIsNotSentAgainToNobody(t *testing.T) {
	r := started(t, provision)
	r.now = r.now.Add(5 * time.Second)
	r.must(engine.Due{LostBefore: r.now})
	if r.last.Dispatch || !r.s.ExecuteBefore.Equal(r.now.Add(10*time.Second)) {
		t.Errorf("sent %t, next look at %s; want the next look in ten seconds", r.last.Dispatch, r.s.ExecuteBefore)
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
