package operator_test

import (
	"testing"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

func TestSpelled_EitherSpelling_IsTheAllowedOne(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"canceled", "cancelled"} {
		if got, ok := operator.Spelled(state, operator.OrchestrationStates()); got != operator.StateCanceled || !ok {
			t.Errorf("%s: got %q, want %q", state, got, operator.StateCanceled)
		}
		if got, ok := operator.Spelled(state, event.OperationStates()); got != event.Cancelled || !ok {
			t.Errorf("%s: got %q, want %q", state, got, event.Cancelled)
		}
	}
	for _, state := range []string{"cancelling", "canceledd", "", "CANCELLED"} {
		if got, ok := operator.Spelled(state, event.OperationStates()); ok {
			t.Errorf("%q: got %q, want none", state, got)
		}
	}
}
