package steps_test

import (
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/test/internal/rehearsal"
)

// What a customer has left in a runtime is waited for, unless the account behind it is gone.
func TestADeprovisioningWaitsForTheBTPOperatorUnlessTheAccountIsGone(t *testing.T) {
	t.Parallel()
	waited := map[string]time.Duration{}
	for _, name := range []string{"deprovision a runtime in use", "clean up an account"} {
		w, run := rehearsal.Play(t, scenario(t, name), nil)
		if status := run.Status(); status.State != event.Succeeded || len(status.NotCompleted) > 0 {
			t.Fatalf("%s: %s, not completed %v", name, status.State, status.NotCompleted)
		}
		if held := w.Held(); held["runtimes/ServiceInstance"]+held["runtimes/ServiceBinding"] != 0 {
			t.Errorf("%s: left %v", name, held)
		}
		var first, last time.Time
		for _, f := range run.Steps() {
			if f.Step == "BTPOperator_Cleanup" {
				if first.IsZero() {
					first = f.StartedAt
				}
				last = f.FinishedAt
			}
		}
		waited[name] = last.Sub(first)
	}
	if d := waited["clean up an account"]; d > 0 {
		t.Errorf("the clean-up of an account waited for %s", d)
	}
	if d := waited["deprovision a runtime in use"]; d < time.Minute {
		t.Errorf("the deprovisioning waited for %s only", d)
	}
}
