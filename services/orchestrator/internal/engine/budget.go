package engine

import (
	"maps"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// budget limits how long a step is repeated for one reason: an error, or waiting.
type budget struct {
	every   time.Duration
	timeout time.Duration // zero means that only the deadline of the operation applies
	since   time.Time
	waiting bool
	// earlier is the last error before the step waited.
	earlier *event.Error
}

// spent reports whether the time of the budget is over.
func (b budget) spent(now time.Time) bool {
	return b.timeout > 0 && !now.Before(b.since.Add(b.timeout))
}

// budgetOf returns the budget that a try with the outcome retry counts against. A step without a wait has one budget, which starts
// with its first try. A step with a wait has two: the retry budget covers the errors since the step last waited, and the wait budget
// starts with the first try that ended with waiting and includes the time of all errors.
// begun is the start of the try.
func (m *machine) budgetOf(r *Result, step *process.Step, begun time.Time) budget {
	if !step.Waits() {
		return budget{every: step.Retry.Every, timeout: step.Retry.Timeout, since: m.s.FirstTriedAt}
	}
	since := begun
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

func (m *machine) keepTry(step string) {
	if m.s.StepAttempt == 0 || m.s.FirstTriedAt.IsZero() {
		return
	}
	try := m.s.Tries[step]
	try.FirstTriedAt, try.Attempts = m.s.FirstTriedAt, m.s.StepAttempt
	m.setTry(step, try)
}

func (m *machine) setTry(step string, try Try) {
	tries := maps.Clone(m.s.Tries)
	if tries == nil {
		tries = map[string]Try{}
	}
	tries[step] = try
	m.s.Tries = tries
}

func (m *machine) dropTry(step string) {
	if _, ok := m.s.Tries[step]; !ok {
		return
	}
	tries := maps.Clone(m.s.Tries)
	delete(tries, step)
	if len(tries) == 0 {
		tries = nil
	}
	m.s.Tries = tries
}
