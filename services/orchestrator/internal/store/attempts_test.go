package store

import (
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// A stage whose memory is lost is repeated after one second, which is 86,400 times a day.
func TestAttempts_LargeNumber_IsStored(t *testing.T) {
	b := setup(t)
	r := b.started(1)
	r.StageAttempt = 86400
	change := b.apply(r, engine.Result{Outcome: event.OutcomeStageLost, Cursor: r.Cursor, StartedAt: epoch, FinishedAt: epoch}, epoch)
	if _, err := b.Write(t.Context(), []*Change{change}); err != nil {
		t.Fatal(err)
	}
	if got := b.load(r.Operation.ID).StageAttempt; got != 86401 {
		t.Errorf("the stage is at attempt %d, want 86401", got)
	}
}
