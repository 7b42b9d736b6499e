package engine

import (
	"fmt"
	"time"
)

// limitExecution sets the limit of a command that is sent now.
func (m *machine) limitExecution(limit time.Duration) {
	m.s.ExecuteBefore, m.s.Extended = earlier(m.now.Add(limit), m.s.Deadline), 0
	m.setExtended(limit)
}

// maxCut bounds Extended, which is stored in 32 bits. Limits of operations are hours.
const maxCut = 24 * 24 * time.Hour

// setExtended sets Extended for a command that is sent now with a time limit, so that the time of sending follows from ExecuteBefore.
func (m *machine) setExtended(limit time.Duration) {
	by := m.s.ExecuteBefore.Sub(m.now.Add(limit)).Truncate(time.Millisecond)
	if m.s.Extended <= 0 {
		by = min(by, 0) // the clock of another orchestrator is not an extension
	}
	m.s.Extended = max(by, -maxCut)
}

// extend moves the limit of the command in flight, because its worker needs more time. The budget of the step still bounds it: at its end the
// command counts as unanswered. The limit never moves backwards, so a repeated request does no harm.
func (m *machine) extend(e Extend) error {
	switch {
	case !m.s.InFlight() || m.s.AwaitedCursor() != e.Cursor:
		return fmt.Errorf("%w: the operation does not await the result of the command", ErrNotPossible)
	case m.s.CancelReason != "":
		return fmt.Errorf("%w: the operation is to be cancelled: %s", ErrNotPossible, m.s.CancelReason)
	case !m.now.Before(m.s.ExecuteBefore):
		return fmt.Errorf("%w: the time limit has passed", ErrNotPossible)
	}
	limit := m.now.Add(e.For)
	if left := leftAt(m.p, &m.s, m.s.Step); left.EndsAt.Before(limit) {
		if limit = left.EndsAt; !limit.After(m.s.ExecuteBefore) {
			return fmt.Errorf("%w: the %s budget of the step ends at %s", ErrNotPossible, left.Limit, left.EndsAt.UTC().Format(time.RFC3339))
		}
	}
	if by := limit.Sub(m.s.ExecuteBefore).Truncate(time.Millisecond); by > 0 {
		m.s.ExecuteBefore, m.s.Extended = m.s.ExecuteBefore.Add(by), m.s.Extended+by
	}
	m.out.Changed = true
	return nil
}
