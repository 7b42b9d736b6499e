package engine

import "fmt"

// slow marks an operation whose command has been executing for longer than usual. It lasts until the step has a result, or no answer in time. A
// try that follows another one keeps the condition of that one.
func (m *machine) slow(e Slow) error {
	switch {
	case !m.s.InFlight() || m.s.Cursor != e.Cursor || m.s.Dispatch != e.Dispatch:
		return fmt.Errorf("%w: the operation has moved on", ErrNotPossible)
	case m.s.Condition != "":
		return fmt.Errorf("%w: the operation is %s", ErrNotPossible, m.s.Condition)
	}
	m.setCondition(TakesLong, m.s.SentAt)
	m.out.Changed = true
	return nil
}
