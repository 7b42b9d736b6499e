package simulation_test

import "time"

const (
	// republishWithin is how long after it was sent a command is published once more, and clocksDiffer how far clocks may be apart.
	republishWithin = 20 * time.Second
	clocksDiffer    = 5 * time.Second
)

// republish publishes once more what was sent a moment ago, since the orchestrator may have been killed before it was published.
func (w *world) republish(o *orchestrator, t *task) {
	now := w.clock(o)
	young := func(sent time.Time) bool {
		return sent.After(now.Add(-republishWithin)) && !sent.After(now.Add(clocksDiffer)) && sent.After(w.lostAt.Add(clocksDiffer))
	}
	t.works, t.done = nil, nil
	for _, op := range w.operations {
		s := &op.state
		if !s.InFlight() || !now.Before(s.ExecuteBefore) {
			continue
		}
		sent := s.SentAt
		if again := s.ExecuteBefore.Add(-op.p.Stages[s.Stage].Steps[s.Step].Execution); again.After(sent) && w.bug != bugFirstSentAtAStart {
			sent = again
		}
		if !young(sent) {
			// It cannot be told of one that was sent again close to the deadline, or that a clock far ahead has looked at since.
			unsure := s.ExecuteBefore.Equal(s.Deadline) || sent.After(now.Add(clocksDiffer))
			if c := op.model.commands[s.Cursor]; young(c.committed) && !unsure {
				w.violate("command %d was sent at %s and is left out at a start at %s", s.Cursor, c.committed, now)
			}
			continue
		}
		k := w.load(op)
		k.republish = w.bug != bugNothingAtAStart
		t.works = append(t.works, k)
		w.count(countAtStart)
	}
	t.done = t.works
	t.after(w, t.done, phaseStarted)
}

// started holds what is on the bus after a start: everything that was sent a moment ago and has not moved on.
func (w *world) started(o *orchestrator, t *task) {
	o.fresh = false
	for _, k := range t.done {
		if s := &k.op.state; k.op.version == k.read && !k.op.model.commands[s.Cursor].out {
			w.violate("command %d is not on the bus after a start", s.Cursor)
		}
	}
}
