package simulation_test

import (
	"errors"

	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// fold reads the rows of results, from the cache or the database, and lets the engine decide.
func (w *world) fold(o *orchestrator, t *task) {
	t.works = nil
	at := w.clock(o)
	var again []*message
	for i := range t.todo {
		m := t.todo[i]
		k := find(t.works, m.operation)
		if k == nil {
			op := w.byID[m.operation]
			if r := o.cached(op.n); r.known {
				k = w.newWork(op, &r, false)
				w.count(countCached)
			} else {
				k = w.load(op)
			}
			t.works = append(t.works, k)
		}
		switch err := w.decide(k, m.result, at); {
		case err == nil:
		case !errors.Is(err, engine.ErrStale):
			w.violate("a result is refused: %v", err)
		case k.fresh || w.bug == bugStaleFromTheCache:
			k.owes = k.owes || len(k.changes) == 0
			k.republish = k.owes && w.bug != bugNoRepublish
			w.count(countStale)
		case len(k.changes) == 0:
			o.drop(m.operation)
			again = append(again, m)
			continue
		default:
			w.count(countStale)
		}
		k.items = append(k.items, m)
	}
	t.todo = again
	t.works = filter(t.works, func(k *work) bool { return len(k.items) > 0 })
	for _, k := range t.works {
		if len(k.changes) > 0 && k.effects.Finished {
			k.release = true
		}
	}
	t.plan = append(t.plan, phaseWrite)
	switch w.bug {
	case bugAckBeforeCommit:
		t.plan = append([]phase{phaseAck}, t.plan...)
	case bugPublishBeforeCommit:
		t.collect(w, t.works)
		for range t.out {
			t.plan = append([]phase{phasePublish}, t.plan...)
		}
	default:
	}
}

// write commits a round. What others have changed meanwhile is folded again.
func (w *world) write(o *orchestrator, t *task, fault uint16) {
	if w.fails(fault) {
		w.forgetAll(o, t)
		return
	}
	for _, k := range t.works {
		if len(k.changes) > 0 && k.op.version != k.read && w.bug != bugNoCompareAndSet {
			w.count(countConflicts)
			o.drop(k.op.n)
			t.todo = append(t.todo, k.items...)
			continue
		}
		w.commit(k)
		if k.release {
			w.release(k)
		}
		t.done = append(t.done, k)
	}
	w.checkDatabase()
	if w.silent(fault) {
		w.forgetAll(o, t)
		return
	}
	w.remember(o, t.works)
	if len(t.todo) > 0 {
		if t.rounds++; t.rounds == 5 {
			w.count(countGivenUp)
			t.abort()
			return
		}
		t.plan = append(t.plan, phaseFold)
		return
	}
	if w.bug == bugAckBeforePublish {
		t.plan = append(t.plan, phaseAck)
	}
	t.after(w, t.done, phaseSettle, phaseAck)
}
