package simulation_test

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

func (tx *ramTx) Foldable(_ context.Context, through map[string]int64, limit int) (map[string][]engine.Entry, bool, error) {
	found := map[string][]engine.Entry{}
	for id, cursor := range through {
		s := tx.byID[id]
		if s == nil {
			continue
		}
		if s.factsAfter != nil && tx.bug != bugFoldsUnnoted {
			cursor = min(cursor, *s.factsAfter)
		}
		if tx.foldable != nil {
			tx.foldable(s, cursor)
		}
		for _, e := range s.history {
			if e.Cursor <= cursor && len(found[id]) < limit {
				found[id] = append(found[id], e)
			}
		}
	}
	return found, true, nil
}

func (tx *ramTx) FoldHistories(_ context.Context, folds []store.Fold) error {
	for _, f := range folds {
		s := tx.byID[f.OperationID]
		tx.writes = append(tx.writes, func() {
			history := slices.DeleteFunc(slices.Clone(s.history), func(e engine.Entry) bool { return slices.Contains(f.Removed, e.Cursor) })
			for i := range f.Entries {
				j := slices.IndexFunc(history, func(e engine.Entry) bool { return e.Cursor == f.Entries[i].Cursor })
				folded := *f.Entries[i].Folded
				switch tx.bug {
				case bugFoldsTooMany:
					folded.Tries++
				case bugFoldsFromTheLast:
					folded.Cursor = history[j].Cursor
				}
				history[j].Folded = &folded
				if tx.bug != bugFoldsUnsaved {
					history[j].Saved = f.Entries[i].Saved
				}
			}
			s.history = history
			if tx.folded != nil {
				tx.folded(len(f.Removed))
			}
		})
	}
	return nil
}

// Range implements dispatch.Backlog.
func (w *world) Range(_ context.Context, name event.Stream) (bus.StreamRange, error) {
	if w.access(callRange) == faultFails {
		return bus.StreamRange{}, errRefused
	}
	queue := w.requests
	if name == event.StreamResults {
		queue = w.results
	}
	r := bus.StreamRange{Created: w.made[name], First: uint64(w.seq) + 1, Last: uint64(w.seq)}
	for _, m := range queue {
		if w.bug != bugFoldsUnacknowledged {
			r.First = min(r.First, uint64(m.seq))
		}
	}
	return r, nil
}

// checkFoldable checks that all facts of the part of a history that may be folded are published.
func (w *world) checkFoldable(s *stored, through int64) {
	op := w.byID[numberOf(s.row.Operation.ID)]
	for i := range op.facts {
		if f := &op.facts[i]; f.Cursor <= through && !op.excused && !op.published[factID(f)] {
			w.violate("the history of operation %d may be folded up to cursor %d, and the fact %s of cursor %d is not published", op.n, through, f.Type, f.Cursor)
		}
	}
}

func factID(f *engine.Fact) string { return strconv.FormatInt(f.Cursor, 10) + "/" + string(f.Type) }

// checkFolded compares the stored history of an operation with the entries as they were committed: each stored entry is the last of its
// tries, and every try belongs to one entry.
func (w *world) checkFolded(op *operation) {
	stored := 0
	for i := range op.history {
		e := &op.history[i]
		last := slices.IndexFunc(op.journal, func(j engine.Entry) bool { return j.Cursor == e.Cursor })
		if last < 0 || !sameEntry(&op.journal[last], e) {
			w.violate("the history of operation %d has an entry of cursor %d that was not committed: %+v", op.n, e.Cursor, e)
		}
		stored += e.Tries()
		if e.Folded != nil {
			w.checkTries(op, e, last)
		}
	}
	w.checkTraced(op)
	if stored != len(op.journal) {
		w.violate("the history of operation %d has %d tries, but %d were committed", op.n, stored, len(op.journal))
	}
	if !slices.EqualFunc(engine.FoldHistory(op.journal), engine.FoldHistory(op.history), func(a, b engine.Entry) bool {
		return a.Cursor == b.Cursor && a.Tries() == b.Tries()
	}) {
		w.violate("the stored history of operation %d is not shown like the committed one", op.n)
	}
}

// sameEntry compares entries apart from their tries and from what these saved, which checkTries and checkTraced check.
func sameEntry(a, b *engine.Entry) bool {
	return a.Cursor == b.Cursor && a.Kind == b.Kind && a.Stage == b.Stage && a.Step == b.Step && a.StageAttempt == b.StageAttempt &&
		a.StepAttempt == b.StepAttempt && a.Outcome == b.Outcome && a.WorkerVersion == b.WorkerVersion && a.Message == b.Message && a.Error == b.Error &&
		a.StartedAt.Equal(b.StartedAt) && a.FinishedAt.Equal(b.FinishedAt) && a.Queued == b.Queued && a.RetryAfter == b.RetryAfter && a.Took == b.Took
}

// checkTraced checks that the saved data before and after one of the committed entries follows from the current data, and that the stored
// history leads back to the same beginning.
func (w *world) checkTraced(op *operation) {
	if len(op.journal) == 0 {
		return
	}
	i := op.n * 7 % len(op.journal)
	e := &op.journal[i]
	before, after, recorded, err := engine.SavedAround(op.row.Details, op.journal, i)
	was := op.traced[e.Cursor]
	if err != nil || recorded && (e.Kind != engine.KindStarted && !sameSaved(before, was[0]) || !sameSaved(after, was[1])) {
		w.violate("the history of operation %d traces the saved data of cursor %d back to %s and %s, want %s: %v", op.n, e.Cursor, before.Details, after.Details, was, err)
	}
	was = op.traced[op.journal[0].Cursor]
	if _, start, recorded, err := engine.SavedAround(op.row.Details, op.history, 0); err != nil || recorded && !sameSaved(start, was[1]) {
		w.violate("the stored history of operation %d traces the saved data back to %s, want %s: %v", op.n, start.Details, was[1], err)
	}
}

// sameSaved compares traced data with that of a state.
func sameSaved(got engine.SavedData, want json.RawMessage) bool {
	if len(got.Unknown) > 0 {
		return true
	}
	var a, b map[string]any
	_ = json.Unmarshal(got.Details, &a) // nil if empty
	_ = json.Unmarshal(want, &b)
	return len(a)+len(b) == 0 || reflect.DeepEqual(a, b)
}

// trace notes the saved data before and after the entries of a transition.
func (op *operation) trace(before, after json.RawMessage, entries []engine.Entry) {
	for i := range entries {
		if op.traced == nil {
			op.traced = map[int64][2]json.RawMessage{}
		}
		op.traced[entries[i].Cursor] = [2]json.RawMessage{before, after}
		before = after // the first entry has the change
	}
}

// checkTries checks that a folded entry stands for the consecutive tries of a step up to the last one, which had the same result.
func (w *world) checkTries(op *operation, e *engine.Entry, last int) {
	tries, first := 0, e
	for i := last; i >= 0 && op.journal[i].Cursor >= e.Folded.Cursor; i-- {
		j := &op.journal[i]
		switch {
		case j.Stage != e.Stage:
			w.violate("the history of operation %d folds tries of step %d/%d before and after %q", op.n, e.Stage, e.Step, j.Name())
		case j.Step != e.Step || j.Kind != e.Kind:
			continue
		case j.Outcome != e.Outcome || j.Message != e.Message || (j.Error == nil) != (e.Error == nil) || j.Error != nil && *j.Error != *e.Error:
			w.violate("the history of operation %d folds tries of step %d/%d with different results", op.n, e.Stage, e.Step)
		}
		tries, first = tries+1, j
	}
	want := engine.Folded{Tries: tries, Cursor: first.Cursor, StageAttempt: first.StageAttempt, StepAttempt: first.StepAttempt, StartedAt: first.StartedAt}
	if *e.Folded != want {
		w.violate("the history of operation %d has folded other tries of step %d/%d: %+v, want %+v", op.n, e.Stage, e.Step, *e.Folded, want)
	}
}

// foldBugs are bugs in the folding of histories.
func foldBugs() []planted {
	return []planted{
		{name: "a try is folded before its message is acknowledged", want: "may be folded up to", bug: bugFoldsUnacknowledged},
		{name: "a try is folded before its facts are published", first: 2410, want: "may be folded up to", bug: bugFoldsUnnoted},
		{name: "a folded entry counts a try twice", want: "the history of operation", bug: bugFoldsTooMany},
		{name: "a folded entry forgets its first try", want: "has folded other tries", bug: bugFoldsFromTheLast},
		{name: "a folded entry forgets what its tries saved", want: "traces the saved data", bug: bugFoldsUnsaved},
	}
}
