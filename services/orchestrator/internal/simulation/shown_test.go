package simulation_test

import (
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// checkShown checks what the operator API shows of a state: how the operation stands, what is left of the budget of its step, and what a
// retry would run again.
func (w *world) checkShown(op *operation, s *engine.State) {
	want, since := s.Condition, s.ConditionSince
	if s.HoldID != "" {
		want, since = engine.Held, s.HeldSince
	}
	if s.Queue != "" {
		want, since = engine.Limited, s.LimitedSince
	}
	if c, at := s.Standing(); c != want || !at.Equal(since) {
		w.violate("the operation stands as %q since %s, want %q since %s", c, at, want, since)
	}
	w.checkLeft(op, s)
	if s.Status == event.Failed {
		w.checkPreview(op, s, engine.Retry{By: "me"}, s.Stage, 0)
		first := &op.p.Stages[0]
		w.checkPreview(op, s, engine.Retry{By: "me", Stage: first.Name}, 0, 0)
		if last := len(first.Steps) - 1; s.Stage > 0 {
			w.checkPreview(op, s, engine.Retry{By: "me", Stage: first.Name, Step: first.Steps[last].Name}, 0, last)
		}
	}
}

// checkLeft compares the budget that is shown with the first try that the model has seen.
func (w *world) checkLeft(op *operation, s *engine.State) {
	left := engine.Left(op.p, s)
	if shown := s.InFlight() || s.Waiting(); shown != (left != nil) {
		w.violate("a budget is shown: %t, want %t", left != nil, shown)
	}
	if left == nil {
		return
	}
	step := &op.p.Stages[s.Stage].Steps[s.StandsAt()]
	end, policy := s.Deadline, process.Fail
	if op.p.Stages[s.Stage].Finally {
		policy = process.Skip
	}
	t, tried := op.model.tries[step.Name]
	if step.Waits() || !tried || t.first.IsZero() { // the two budgets of a step with a wait are checked when they are spent
		if left.EndsAt.After(s.Deadline) {
			w.violate("the budget of %s ends at %s, after the operation", step.Name, left.EndsAt)
		}
		return
	}
	if at := t.first.Add(step.Retry.Timeout); step.Retry.Timeout > 0 && at.Before(end) {
		end, policy = at, step.OnTimeout
	}
	if !left.EndsAt.Equal(end) || left.OnTimeout != policy {
		w.violate("the budget of %s ends at %s with %s, want %s with %s", step.Name, left.EndsAt, left.OnTimeout, end, policy)
	}
}

// checkPreview checks that the preview of a retry lists every step from a step on, and none that is done as running again.
func (w *world) checkPreview(op *operation, s *engine.State, e engine.Retry, from, fromStep int) {
	stage := e.Stage
	planned, err := engine.Preview(op.p, s, e)
	if err != nil {
		w.violate("the preview of a retry from %q: %v", stage, err)
	}
	n := 0
	for i := from; i < len(op.p.Stages); i++ {
		for j := range op.p.Stages[i].Steps {
			if i == from && j < fromStep {
				continue
			}
			step := &op.p.Stages[i].Steps[j]
			if n >= len(planned) || planned[n].Stage != op.p.Stages[i].Name || planned[n].Step != step.Name {
				w.violate("the preview of a retry from %q lists %+v, want step %d to be %s", stage, planned, n, step.Name)
			}
			if later := i > s.Stage || i == s.Stage && j > s.Step; later && planned[n].Plan == engine.PlanAgain && !op.p.Stages[i].Finally {
				w.violate("the preview says that %s runs again, and it never ran", step.Name)
			}
			n++
		}
	}
	if n != len(planned) {
		w.violate("the preview of a retry from %q lists %d steps, want %d", stage, len(planned), n)
	}
}
