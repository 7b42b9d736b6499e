package engine

import (
	"fmt"
	"time"
)

// limitExecution sets the limit of a command that is sent now.
func (m *machine) limitExecution(limit time.Duration) {
	m.s.ExecuteBefore, m.s.Extended = earlier(m.now.Add(limit), m.s.Deadline), 0
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
