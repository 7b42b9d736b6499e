package orchestrator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

func suspension(instance string) event.Operation {
	op := by("me@example.org", operation(event.Deprovision, instance, "trial"))
	op.Temporary = true
	return op
}

// saving is a step of the provisioning that saves what it created.
func saving(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
	var own map[string]any
	if err := op.Details("alpha", &own); err != nil {
		return op, 0, err
	}
	if own["id"] != nil {
		return worker.Skip(op, "it already exists")
	}
	return op, 0, op.SaveDetails(map[string]any{"id": op.ID})
}

func TestSuspension_Unsuspended_RunsEveryStepAgain(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.script.set("First", saving)
	s.run(by("me@example.org", operation(event.Provision, "i", "trial")))
	s.run(suspension("i"))
	if n := s.users("i"); n != 2 {
		t.Errorf("%d requests contain a user ID, want 2: the instance is only suspended", n)
	}
	back := operation(event.Provision, "i", "trial")
	s.run(back)
	for _, line := range s.history(back.ID) {
		if line == "First skipped" {
			t.Error("the provisioning assumes that resources exist which the suspension removed")
		}
	}
}

func TestSuspension_WithLeftovers_DeprovisionRunsEveryStep(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.run(operation(event.Provision, "i", "trial"))
	s.script.set("Remove_First", failing)
	s.run(suspension("i"))
	s.script.set("Remove_First", done)
	s.run(operation(event.Deprovision, "i", "trial"))
	for _, step := range []string{"Remove_First", "Remove_Second"} {
		if n := s.script.count(step); n != 2 {
			t.Errorf("%s ran %d times, want once in each operation", step, n)
		}
	}
}

// unanswered lets the first request of a step have no answer.
func (s *system) unanswered(step string) {
	s.script.set(step, func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		s.script.set(step, saving)
		return worker.Retry(op, time.Millisecond, &worker.Error{Component: "ext", Reason: worker.ReasonNetworkTimeout, Message: "no answer"})
	})
}

// An unanswered request may take effect when the runtime is suspended, and after the instance was deprovisioned.
func TestSuspension_AfterUnansweredTry_DeprovisionIsUnsettled(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.unanswered("First")
	s.run(operation(event.Provision, "i", "trial"))
	s.run(suspension("i"))
	back := operation(event.Provision, "i", "trial")
	s.run(back)
	require.NotContains(t, s.history(back.ID), "First skipped", "the new runtime has data of the removed one")
	s.run(suspension("i"))
	removal := operation(event.Deprovision, "i", "trial")
	s.run(removal)
	var answer event.OperationsAnswer
	require.NoError(t, s.bus.Ask(t.Context(), event.AskOperations, event.OperationsRequest{IDs: []string{removal.ID}}, &answer))
	require.Len(t, answer.Operations, 1)
	require.NotNil(t, answer.Operations[0].UnsettledUntil, "the deprovisioning must be repeated")
}

// What a deprovisioning finds after an earlier one has removed the runtime was created late. It is counted and named.
func TestDeprovision_LateEffect_IsCountedAndNamed(t *testing.T) {
	s := measured(t)
	s.start()
	s.unanswered("First")
	s.script.set("Remove_First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		op.NoteRemoved("evaluation 12")
		return op, 0, nil
	})
	s.run(operation(event.Provision, "i", "trial"))
	s.run(suspension("i"))
	s.shows(map[string]float64{"keb_late_effects_total|Remove_First": 0})
	_, err := s.db.ExecContext(t.Context(), `UPDATE orchestrator.instances SET unanswered_at = unanswered_at - interval '1 hour'`)
	require.NoError(t, err)
	removal := operation(event.Deprovision, "i", "trial")
	s.run(removal)
	s.shows(map[string]float64{"keb_late_effects_total|Remove_First": 1})
	var d struct {
		History []struct{ Step, Message string }
	}
	s.get("/operations/"+removal.ID, &d)
	require.Contains(t, d.History, struct{ Step, Message string }{"Remove_First", "removed what an unanswered request had created: evaluation 12"})
}
