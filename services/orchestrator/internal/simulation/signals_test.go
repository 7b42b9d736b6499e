package simulation_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// storedSignal is an event from outside in the store in memory.
type storedSignal struct {
	n      int64
	signal event.Signal
	// delivered is the id of the operation that has it; empty for none.
	delivered string
}

// AddSignals implements dispatch.SignalStore.
func (r *ram) AddSignals(_ context.Context, signals []event.Signal) (added int, err error) {
	fault := r.access(callSignals)
	if fault == faultFails && r.bug == bugSignalNotStored {
		return len(signals), nil
	}
	if fault == faultFails {
		return 0, errAway
	}
	for _, s := range signals {
		known := slices.ContainsFunc(r.signals, func(o *storedSignal) bool {
			return o.signal.Key == s.Key && o.signal.Source == s.Source && o.signal.ID == s.ID
		})
		if !known || r.bug == bugRepetitionDelivered {
			r.signals = append(r.signals, &storedSignal{n: int64(len(r.signals) + 1), signal: s})
			added++
		}
	}
	if fault == faultSilent {
		return 0, errAway
	}
	return added, nil
}

// nextSignal returns the first event with a key that was not delivered; nil if there is none.
func (r *ram) nextSignal(key string) *storedSignal {
	var next *storedSignal
	for _, s := range r.signals {
		if s.signal.Key == key && s.delivered == "" && (next == nil || r.bug == bugSignalsReversed) {
			next = s
		}
	}
	return next
}

// SignalledKeys implements dispatch.SignalStore.
func (r *ram) SignalledKeys(_ context.Context, limit int) (keys []string, err error) {
	for _, s := range r.rows {
		if s.row.AwaitsEvent() && r.nextSignal(s.row.EventKey) != nil && !slices.Contains(keys, s.row.EventKey) && len(keys) < limit {
			keys = append(keys, s.row.EventKey)
		}
	}
	return keys, nil
}

func (tx *ramTx) Signalled(_ context.Context, keys []string) (found []store.Signalled, err error) {
	var waiting []*store.Row
	for _, s := range tx.rows {
		if s.row.AwaitsEvent() && slices.Contains(keys, s.row.EventKey) {
			waiting = append(waiting, &s.row)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *store.Row) int {
		if c := a.ConditionSince.Compare(b.ConditionSince); c != 0 {
			return c
		}
		return byID(a, b)
	})
	taken := map[string]bool{}
	for _, row := range waiting {
		if s := tx.nextSignal(row.EventKey); s != nil && !taken[row.EventKey] {
			taken[row.EventKey] = true
			found = append(found, store.Signalled{OperationID: row.Operation.ID, N: s.n, Signal: s.signal})
		}
	}
	return found, nil
}

func (tx *ramTx) SignalsDelivered(_ context.Context, delivered []store.Signalled, _ time.Time) error {
	for _, d := range delivered {
		s := tx.signals[d.N-1]
		if s.delivered != "" {
			return store.ErrConflict
		}
		if tx.bug != bugDeliveredAgain {
			tx.writes = append(tx.writes, func() { s.delivered = d.OperationID })
		}
	}
	return nil
}

// keyOf returns the key of the events for an operation.
func keyOf(operation int) string { return "op." + strconv.Itoa(operation) }

// signal makes an external system send an event: a new one, or one whose sending was not confirmed. Some confirmed events are sent again.
func (w *world) signal(c choice) {
	o := &w.orchestrators[c.a%orchestrators]
	t := &o.tasks[taskSignal]
	if t.working() || w.requested == 0 {
		return
	}
	if c.c%4 != 1 || len(w.unsent) == 0 {
		w.seq++
		w.unsent = append(w.unsent, event.Signal{
			Key: keyOf(int(c.b) % w.requested), Source: "/ext", ID: strconv.Itoa(w.seq), Data: json.RawMessage(strconv.Itoa(w.seq)),
		})
	}
	s := w.unsent[int(c.d)%len(w.unsent)]
	t.kind, t.process = taskSignal, o
	w.launch(t, func(ctx context.Context) {
		if _, err := o.dispatch.Signal(ctx, s); err != nil {
			return // it is sent again
		}
		w.count(countSignals)
		w.accepted(s)
		if c.c>>2%4 > 0 {
			w.unsent = slices.DeleteFunc(w.unsent, func(u event.Signal) bool { return u.ID == s.ID })
		}
	})
	w.trace("event %s of %s is sent to orchestrator %d", s.ID, s.Key, c.a%orchestrators)
	w.step(o, t, choice{})
}

// accepted checks that an event whose sending is confirmed is stored once.
func (w *world) accepted(s event.Signal) {
	n := 0
	for _, stored := range w.db.signals {
		if stored.signal.ID == s.ID {
			n++
		}
	}
	if n != 1 {
		w.violate("the event %s was accepted and is stored %d times", s.ID, n)
	}
}

// checkSignal checks that an event is delivered once, in the order of the events, and before a poll, and that the commands of a step have the
// event until the step waits for the next one.
func (w *world) checkSignal(op *operation, before *engine.State, e engine.Event, next *engine.State, effects *engine.Effects) {
	m := &op.model
	step := func(s *engine.State) string { return op.p.Stages[s.Stage].Steps[s.Step].Name }
	switch e := e.(type) {
	case engine.Signal:
		w.count(countDelivered)
		if !before.Waiting() || e.Key != keyOf(op.n) || m.key != e.Key {
			w.violate("the event %s is delivered to an operation that waits for %q", e.Key, m.key)
		}
		if m.delivered[e.ID] {
			w.violate("the event %s is delivered twice", e.ID)
		}
		m.delivered[e.ID] = true
		for _, s := range w.db.signals {
			if s.signal.ID == e.ID {
				break
			}
			if s.signal.Key == e.Key && !m.delivered[s.signal.ID] {
				w.violate("the event %s overtakes %s", e.ID, s.signal.ID)
			}
		}
		m.events[step(before)] = e.ID
	case engine.Due:
		if w.calm && before.Waiting() && next.InFlight() && next.Stage == before.Stage && m.key != "" && slices.ContainsFunc(w.db.signals[:w.current.known], func(s *storedSignal) bool {
			return s.signal.Key == m.key && !m.delivered[s.signal.ID]
		}) {
			w.violate("the operation polls although its event has come")
		}
	}
	m.followEvents(op.p, before, e, next, effects)
	if !next.InFlight() {
		return
	}
	_, command := engine.Command(op.p, next)
	id := ""
	if command.Event != nil {
		id = command.Event.ID
	}
	if want := m.events[command.Step]; id != want {
		w.violate("the command of %s has the event %q, want %q", command.Step, id, want)
	}
}

// followEvents updates the events of the steps and the awaited key.
func (m *model) followEvents(p *process.Process, before *engine.State, e engine.Event, next *engine.State, effects *engine.Effects) {
	for i := range effects.History {
		h := &effects.History[i]
		if h.Kind != engine.KindStep {
			continue
		}
		name := p.Stages[h.Stage].Steps[h.Step].Name
		r, isResult := e.(engine.Result)
		switch {
		case h.Outcome == event.OutcomeRetry && isResult:
			if m.key = r.EventKey; r.EventKey != "" {
				delete(m.events, name)
			}
		case h.Outcome == event.OutcomeStageLost || h.Outcome == event.OutcomeNoAnswer:
			m.key = ""
		default:
			delete(m.events, name)
			if name == m.conditionOf {
				m.key = ""
			}
		}
	}
	if next.Status != event.InProgress || next.Ending != nil && before.Ending == nil || next.Stage != before.Stage {
		clear(m.events)
	}
	if next.Condition == "" {
		m.key = ""
	}
}

// signalBugs are bugs with events from outside.
func signalBugs() []planted {
	answered := func(change func(t *spoiled, r *engine.Result, step string)) func(t *spoiled) {
		return func(t *spoiled) {
			if r, ok := t.event.(engine.Result); ok && r.Outcome == event.OutcomeRetry && t.next.Waiting() {
				change(t, &r, t.p.Stages[t.before.Stage].Steps[t.before.Step].Name)
			}
		}
	}
	return []planted{
		{name: "an event that was not stored is confirmed", want: "is stored 0 times", bug: bugSignalNotStored},
		{name: "a repetition of an event is stored", want: "is stored 2 times", bug: bugRepetitionDelivered},
		{name: "a delivered event is delivered again", first: 1170, want: "is delivered twice", bug: bugDeliveredAgain},
		{name: "the sweep does not find events", first: 1300, want: "although its event has come", bug: bugNoSweepOfSignals},
		{name: "the last event is delivered first", want: "overtakes", bug: bugSignalsReversed},
		{name: "a failed try loses its event", first: 680, want: "has the event", decided: answered(func(t *spoiled, r *engine.Result, _ string) {
			if r.EventKey == "" {
				t.next.Events = nil
			}
		})},
		{name: "a step gets an event again that it has answered", first: 3120, want: "has the event", decided: func(t *spoiled) {
			r, ok := t.event.(engine.Result)
			if !ok || t.next.Status != event.InProgress || t.next.Stage != t.before.Stage || r.Outcome == event.OutcomeRetry && r.EventKey == "" {
				return
			}
			step := t.p.Stages[t.before.Stage].Steps[t.before.Step].Name
			if old, ok := t.before.Events[step]; ok {
				t.next.Events = map[string]event.Signal{step: old}
			}
		}},
		{name: "an event goes to the first step of a repeated stage", first: 1400, want: "has the event", decided: func(t *spoiled) {
			if e, ok := t.event.(engine.Signal); ok {
				t.next.Events = map[string]event.Signal{t.p.Stages[t.next.Stage].Steps[t.next.Step].Name: e.Signal}
			}
		}},
		{name: "a step that waits for an event appears as polling", want: "condition", decided: func(t *spoiled) {
			if t.next.Condition == engine.EventAwaited {
				t.next.Condition = engine.Polling
			}
		}},
	}
}
