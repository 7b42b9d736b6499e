package engine_test

import (
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestSlow_LongFirstTry_LastsUntilTheResult(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	sent := r.s.SentAt
	slow := engine.Slow{Cursor: r.s.Cursor, Dispatch: r.s.Dispatch}
	r.now = r.now.Add(20 * time.Second)
	r.must(slow)
	r.wantCondition(engine.TakesLong, sent)
	if r.s.Cursor != slow.Cursor || r.last.Dispatch || !r.s.ConditionSince.Equal(sent) {
		t.Errorf("cursor %d, dispatch %t, since %s: want nothing but the condition since %s", r.s.Cursor, r.last.Dispatch, r.s.ConditionSince, sent)
	}
	r.reject(engine.ErrNotPossible, slow)
	r.succeed()
	r.wantCondition("", time.Time{})
	r.reject(engine.ErrNotPossible, slow)
}

func TestSlow_LaterTry_KeepsItsCondition(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	r.retry(0)
	failing := r.now
	r.wantCondition(engine.Failing, failing)
	r.sleep(10 * time.Second)
	r.reject(engine.ErrNotPossible, engine.Slow{Cursor: r.s.Cursor, Dispatch: r.s.Dispatch})
	r.wantCondition(engine.Failing, failing)
}

func TestSlow_NoAnswer_ReplacesIt(t *testing.T) {
	t.Parallel()
	r := started(t, provision)
	sent := r.s.SentAt
	r.must(engine.Slow{Cursor: r.s.Cursor, Dispatch: r.s.Dispatch})
	r.now = r.s.ExecuteBefore
	r.must(engine.Due{WorkerAlive: true})
	r.wantCondition(engine.NoAnswer, sent)
	r.must(engine.Result{Cursor: r.s.AwaitedCursor(), Outcome: event.OutcomeSucceeded})
	r.wantPosition("B", 1, 1)
	r.wantCondition("", time.Time{})
}
