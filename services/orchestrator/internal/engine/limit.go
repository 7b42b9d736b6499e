package engine

import (
	"fmt"
	"slices"
	"time"
)

// Limited reports whether the decided command waits for room in a limit.
func (s *State) Limited() bool { return s.Queue != "" }

// park makes a command that is decided and not sent wait. The time of the operation runs, so it is due at its deadline.
func (m *machine) park(e Park) error {
	switch {
	case e.Queue == "":
		return fmt.Errorf("%w: the limit has no name", ErrNotPossible)
	case m.s.Limited():
		m.out.Changed = m.s.Queue != e.Queue
		m.s.Queue = e.Queue
		return nil
	}
	if err := m.checkUnsent(e.Cursor, e.Dispatch); err != nil {
		return err
	}
	m.s.Queue, m.s.LimitedSince, m.s.DueAt = e.Queue, m.now, m.s.Deadline
	m.s.ExecuteBefore, m.s.Extended, m.s.Granted = time.Time{}, 0, nil
	m.out.Changed = true
	return nil
}

// grant sends the command of an operation that waited for limits, and counts it in them.
func (m *machine) grant(e Grant) error {
	switch {
	case m.s.InFlight():
		m.out.Changed = !slices.Equal(m.s.Granted, e.Keys)
		m.s.Granted = e.Keys
		return nil
	case !m.s.Limited():
		return fmt.Errorf("%w: the operation does not wait for a limit", ErrNotPossible)
	case !m.now.Before(m.s.Deadline):
		return fmt.Errorf("%w: the operation has used up its time", ErrNotPossible)
	}
	m.endLimit()
	m.s.Granted = e.Keys
	m.send()
	m.out.Changed = true
	return nil
}

// endLimit moves the budgets of a limited operation by the time for which it has waited, but not its deadline.
func (m *machine) endLimit() {
	if !m.s.Limited() {
		return
	}
	if waited := since(m.s.LimitedSince, m.now); waited > 0 {
		m.moveBudgets(waited)
	}
	m.s.Queue, m.s.LimitedSince, m.s.DueAt = "", time.Time{}, time.Time{}
}
