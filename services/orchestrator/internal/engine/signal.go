package engine

import (
	"fmt"
	"maps"

	"github.com/kyma-project/keb/libs/event"
)

// AwaitsEvent reports whether the operation waits for an event, whose key is EventKey. While a command is in flight it does not.
func (s *State) AwaitsEvent() bool { return s.Waiting() && s.EventKey != "" }

// signal continues an operation with the event that it waits for.
func (m *machine) signal(e Signal) error {
	switch {
	case !m.s.AwaitsEvent():
		return fmt.Errorf("%w: the operation waits for no event", ErrNotPossible)
	case e.Key != m.s.EventKey:
		return fmt.Errorf("%w: the operation waits for the event %s, not %s", ErrNotPossible, m.s.EventKey, e.Key)
	case !m.now.Before(m.s.Deadline):
		return fmt.Errorf("%w: the operation has reached its time limit", ErrNotPossible)
	}
	_, step := m.s.current(m.p)
	events := maps.Clone(m.s.Events)
	if events == nil {
		events = map[string]event.Signal{}
	}
	events[step.Name] = e.Signal
	m.s.Events = events
	m.record(Entry{
		Kind: KindEventReceived, Stage: m.s.Stage, Step: m.s.Step, StageAttempt: m.s.StageAttempt, StepAttempt: m.s.StepAttempt,
		Message: fmt.Sprintf("event %s, id %s, of %s", e.Key, e.ID, e.Source), StartedAt: e.ReceivedAt, FinishedAt: m.now,
	})
	m.repeat()
	return nil
}

// dropEvent drops the event of the current step.
func (m *machine) dropEvent() {
	_, step := m.s.current(m.p)
	if step == nil {
		return
	}
	if _, ok := m.s.Events[step.Name]; !ok {
		return
	}
	events := maps.Clone(m.s.Events)
	delete(events, step.Name)
	if len(events) == 0 {
		events = nil
	}
	m.s.Events = events
}

// awaitedEvent returns the event with a key; nil without a key.
func awaitedEvent(key string) *event.AwaitedEvent {
	if key == "" {
		return nil
	}
	return &event.AwaitedEvent{Key: key}
}
