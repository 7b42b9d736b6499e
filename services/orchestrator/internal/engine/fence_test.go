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

func TestDue_PendingOperation_IsRejected(t *testing.T) {
	r := newRun(t, load(t, provision))
	r.reject(engine.ErrNotPossible, engine.Due{})
}
