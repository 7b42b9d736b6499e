package engine

import (
	"fmt"
	"maps"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// Held reports whether a hold keeps the operation from starting, or from sending its next command.
func (s *State) Held() bool { return s.HoldID != "" }

// Awaits reports whether a result with the AwaitedCursor is applied: a command is in flight, or was sent earlier and is held before it is
// sent again.
func (s *State) Awaits() bool {
	return s.InFlight() || s.Status == event.InProgress && s.Held() && s.Dispatch > 1
}

// Standing returns how the operation stands, and since when: Held while it is held, and otherwise its Condition.
func (s *State) Standing() (Condition, time.Time) {
	if s.Held() {
		return Held, s.HeldSince
	}
	return s.Condition, s.ConditionSince
}

// hold holds a pending operation, or one whose command is decided and not sent. The command stays decided.
func (m *machine) hold(e Hold) error {
	switch {
	case e.ID == "":
		return fmt.Errorf("%w: the hold has no id", ErrNotPossible)
	case m.s.Held():
		m.out.Changed = m.s.HoldID != e.ID
		m.s.HoldID = e.ID
		return nil
	case m.s.Status == event.Pending:
	case !m.s.InFlight():
		return fmt.Errorf("%w: no command is decided", ErrNotPossible)
	case m.s.Cursor != e.Cursor || m.s.Dispatch != e.Dispatch:
		return fmt.Errorf("%w: the operation has moved on", ErrNotPossible)
	}
	m.s.HoldID, m.s.HeldSince, m.s.ExecuteBefore = e.ID, m.now, time.Time{}
	m.out.Changed = true
	return nil
}

// release ends a hold. It sends the decided command of an operation in progress.
func (m *machine) release() error {
	if !m.s.Held() {
		return fmt.Errorf("%w: the operation is not held", ErrNotPossible)
	}
	m.endHold()
	m.out.Changed = true
	if m.s.Status != event.InProgress {
		return nil
	}
	_, step := m.s.current(m.p)
	m.s.ExecuteBefore = earlier(m.now.Add(step.Execution), m.s.Deadline)
	m.out.Dispatch = true
	return nil
}

// endHold moves the budgets and the deadline of a held operation by the time for which it was held.
func (m *machine) endHold() {
	held := since(m.s.HeldSince, m.now)
	m.s.HoldID, m.s.HeldSince = "", time.Time{}
	if m.s.Status != event.InProgress || held == 0 {
		return
	}
	for _, t := range []*time.Time{&m.s.FirstTriedAt, &m.s.SentAt, &m.s.StageStartedAt, &m.s.Deadline} {
		*t = later(*t, held)
	}
	m.s.Tries = maps.Clone(m.s.Tries)
	for name, try := range m.s.Tries {
		try.FirstTriedAt, try.WaitingSince, try.FailingSince = later(try.FirstTriedAt, held), later(try.WaitingSince, held), later(try.FailingSince, held)
		m.s.Tries[name] = try
	}
}

// later moves a time that is set.
func later(t time.Time, by time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(by)
}
