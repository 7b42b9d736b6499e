package engine

import (
	"fmt"
	"maps"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// Held reports whether a hold keeps the operation from starting, or from sending its next command.
func (s *State) Held() bool { return s.HoldID != "" }

// Awaits reports whether a result with the AwaitedCursor is applied: a command is in flight, or was sent earlier and is held or limited
// before it is sent again.
func (s *State) Awaits() bool {
	return s.InFlight() || s.Status == event.InProgress && (s.Held() || s.Limited()) && s.Dispatch > 1
}

// Standing returns how the operation stands, and since when: Held while it is held, Limited while it is limited, and otherwise its
// Condition.
func (s *State) Standing() (Condition, time.Time) {
	switch {
	case s.Held():
		return Held, s.HeldSince
	case s.Limited():
		return Limited, s.LimitedSince
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
	default:
		if err := m.checkUnsent(e.Cursor, e.Dispatch); err != nil {
			return err
		}
	}
	m.endLimit()
	m.s.HoldID, m.s.HeldSince, m.s.ExecuteBefore, m.s.Extended, m.s.Granted = e.ID, m.now, time.Time{}, 0, nil
	m.out.Changed = true
	return nil
}

// checkUnsent returns an error unless the command with the cursor and the dispatch number is decided.
func (m *machine) checkUnsent(cursor int64, dispatch int) error {
	switch {
	case !m.s.InFlight() && !m.s.Limited():
		return fmt.Errorf("%w: no command is decided", ErrNotPossible)
	case m.s.Cursor != cursor || m.s.Dispatch != dispatch:
		return fmt.Errorf("%w: the operation has moved on", ErrNotPossible)
	}
	return nil
}

// release ends a hold. It sends the decided command of an operation in progress.
func (m *machine) release() error {
	if !m.s.Held() {
		return fmt.Errorf("%w: the operation is not held", ErrNotPossible)
	}
	m.endHold()
	m.out.Changed = true
	if m.s.Status == event.InProgress {
		m.send()
	}
	return nil
}

// send sends the decided command with its full limit.
func (m *machine) send() {
	_, step := m.s.current(m.p)
	m.limitExecution(step.Execution)
	m.out.Dispatch = true
}

// endHold moves the budgets and the deadline of a held operation by the time for which it was held.
func (m *machine) endHold() {
	held := since(m.s.HeldSince, m.now)
	m.s.HoldID, m.s.HeldSince = "", time.Time{}
	if m.s.Status != event.InProgress || held == 0 {
		return
	}
	m.s.Deadline = later(m.s.Deadline, held)
	m.moveBudgets(held)
}

// moveBudgets moves the budgets by a time for which the decided command was not sent.
func (m *machine) moveBudgets(by time.Duration) {
	for _, t := range []*time.Time{&m.s.FirstTriedAt, &m.s.SentAt, &m.s.StageStartedAt} {
		*t = later(*t, by)
	}
	m.s.Tries = maps.Clone(m.s.Tries)
	for name, try := range m.s.Tries {
		try.FirstTriedAt, try.WaitingSince, try.FailingSince = later(try.FirstTriedAt, by), later(try.WaitingSince, by), later(try.FailingSince, by)
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
