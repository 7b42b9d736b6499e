package engine

import (
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// budget limits how long a step is taken up again for one reason: an error, or waiting.
type budget struct {
	every   time.Duration
	timeout time.Duration // zero: only the deadline of the operation limits it
	since   time.Time
	waiting bool
	// earlier is the last error that came before the step waited.
	earlier *event.Error
}

// budgetOf is the budget that a try with the outcome retry counts against. A step without a wait has one budget for everything,
// from its first try. A step with a wait has two: the retry budget counts the errors since the step last waited, and the wait budget
// runs from the first try that ended with waiting, through all errors.
func (m *machine) budgetOf(r *Result, step *process.Step) budget {
	if !step.Waits() {
		return budget{every: step.Retry.Every, timeout: step.Retry.Timeout, since: m.s.FirstTriedAt}
	}
	since := m.now
	if m.s.StepAttempt <= 1 {
		since = m.s.FirstTriedAt
	}
	try := m.s.Tries[step.Name]
	before := try
	try.FirstTriedAt = m.s.FirstTriedAt
	b := budget{every: step.Retry.Every, timeout: step.Retry.Timeout}
	if r.Error != nil {
		if try.FailingSince.IsZero() {
			try.FailingSince = since
		}
		b.since, try.LastError = try.FailingSince, r.Error
	} else {
		if try.WaitingSince.IsZero() {
			try.WaitingSince = since
		}
		try.FailingSince = time.Time{}
		b = budget{every: step.Wait.Every, timeout: step.Wait.Timeout, since: try.WaitingSince, waiting: true, earlier: try.LastError}
	}
	if try != before {
		m.setTry(step.Name, try)
	}
	return b
}
