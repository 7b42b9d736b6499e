package engine

import (
	"time"

	"github.com/kyma-project/keb/libs/process"
)

// BudgetLeft is how long the step of an operation is tried, and what happens then.
type BudgetLeft struct {
	// Attempts counts the tries of the step, including the running one.
	Attempts int
	// EndsAt is the end of the budget, or of the time of the operation if that is earlier.
	EndsAt    time.Time
	OnTimeout process.Policy
	// Limit names the budget.
	Limit Limit
}

// Limit is the name of a budget.
type Limit string

// The budgets: the retry timeout of the step, its wait timeout, and the time limit of the operation.
const (
	RetryLimit     Limit = "retry"
	WaitLimit      Limit = "wait"
	OperationLimit Limit = "operation"
)

// Left returns the budget of the step that the operation stands at; nil if it is not at a step. It is the budget that budgetOf counts
// another try like the last one against.
func Left(p *process.Process, s *State) *BudgetLeft { return leftAt(p, s, s.StandsAt()) }

// leftAt is Left for a step of the current stage. While a stage is repeated, the current step is not the one that the operation stands at.
func leftAt(p *process.Process, s *State, at int) *BudgetLeft {
	step := p.At(s.Stage, at)
	if step == nil || !s.InFlight() && !s.Waiting() {
		return nil
	}
	try := s.Tries[step.Name]
	if at == s.Step && s.StepAttempt > 0 {
		try.FirstTriedAt, try.Attempts = s.FirstTriedAt, s.StepAttempt
	}
	timeout, since, limit := step.Retry.Timeout, try.FirstTriedAt, RetryLimit
	switch {
	case !step.Waits():
	case at == s.StandsAt() && (s.Condition == Polling || s.Condition == EventAwaited):
		timeout, since, limit = step.Wait.Timeout, try.WaitingSince, WaitLimit
	case !try.FailingSince.IsZero():
		since = try.FailingSince
	}
	left := BudgetLeft{Attempts: try.Attempts, EndsAt: s.Deadline, OnTimeout: process.Fail, Limit: OperationLimit}
	if p.Stages[s.Stage].Finally {
		left.OnTimeout = process.Skip
	}
	if end := since.Add(timeout); timeout > 0 && !since.IsZero() && end.Before(s.Deadline) {
		left.EndsAt, left.OnTimeout, left.Limit = end, step.OnTimeout, limit
	}
	return &left
}
