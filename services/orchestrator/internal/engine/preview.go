package engine

import (
	"slices"

	"github.com/kyma-project/keb/libs/process"
)

// Plan is what becomes of a step after a retry by an operator, as far as it is known before.
type Plan string

// The plans of a step.
const (
	// PlanAgain means that the step runs again.
	PlanAgain Plan = "again"
	// PlanFirst means that the step runs for the first time.
	PlanFirst Plan = "first"
	// PlanSkipped means that the step is skipped.
	PlanSkipped Plan = "skipped"
	// PlanUnknown means that the condition of the step needs data that the operation does not have yet.
	PlanUnknown Plan = "unknown"
)

// Planned is the plan of one step.
type Planned struct {
	Stage, Step string
	Plan        Plan
	// Reason says why a step is skipped, or why its plan is unknown.
	Reason string
}

// Preview returns what becomes of the steps of a failed operation if an operator retries it, in their order. Conditions are evaluated on the
// current details. An error wraps ErrNotPossible.
func Preview(p *process.Process, s *State, e Retry) ([]Planned, error) {
	first, firstStep, err := retryPosition(p, s, e)
	if err != nil {
		return nil, err
	}
	completed := s.Completed
	if first < s.Stage {
		completed = withoutStages(completed, p.Stages[first:])
	}
	input := process.Input{Operation: &s.Operation, Details: s.Details}
	var steps []Planned
	for i := first; i < len(p.Stages); i++ {
		for j := range p.Stages[i].Steps {
			if i == first && j < firstStep {
				continue
			}
			step := &p.Stages[i].Steps[j]
			planned := Planned{Stage: p.Stages[i].Name, Step: step.Name, Plan: PlanFirst}
			if i < s.Stage || i == s.Stage && j <= s.Step || p.Stages[i].Finally {
				planned.Plan = PlanAgain
			}
			runs, err := step.Runs(&input)
			switch {
			case slices.Contains(completed, step.Name):
				planned.Plan, planned.Reason = PlanSkipped, reasonCompleted
			case err != nil:
				planned.Plan, planned.Reason = PlanUnknown, err.Error()
			case !runs:
				planned.Plan, planned.Reason = PlanSkipped, reasonFalse+step.When
			}
			steps = append(steps, planned)
		}
	}
	return steps, nil
}

// Reasons of steps that are skipped without a worker.
const (
	reasonCompleted = "completed by an earlier operation"
	reasonFalse     = "condition is false: "
)
