package operatorapi

import (
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// The row and the operation in progress are read one after the other. An operation that starts in between must not be shown as waiting for
// itself.
func TestWaiting_PendingOperation_NeverWaitsForItself(t *testing.T) {
	t.Parallel()
	for running, want := range map[string]string{
		"":       "admission",
		"itself": "admission",
		"other":  "instance busy with operation other",
	} {
		r := &store.Row{}
		r.Operation.ID, r.Operation.InstanceID, r.Status = "itself", "i-1", event.Pending
		if got := new(API).waiting(r, nil, extras{running: map[string]string{"i-1": running}}).String(); got != want {
			t.Errorf("with %q in progress it waits for %q, want %q", running, got, want)
		}
	}
}
