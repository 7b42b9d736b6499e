package engine

import (
	"slices"
	"time"
)

// Folded is set in a history entry that stands for several tries of a step. The other fields of the entry are those of the last try.
type Folded struct {
	// Tries counts the tries, including the last one.
	Tries int
	// Cursor, StageAttempt, StepAttempt and StartedAt are those of the first try.
	Cursor                    int64
	StageAttempt, StepAttempt int
	StartedAt                 time.Time
	// Similar means that the tries had different messages, of which only the last one is kept.
	Similar bool
}

// A run is a part of a history in which one stage runs and is repeated. It ends with the stage, and at an entry of the whole operation.
//
// The limits of a run keep the history of an endless loop small, whatever its messages are. Above the first limit of entries or bytes,
// tries with the same error are folded even if their messages differ or other tries of the step are between them; above the second one,
// all tries of a step with the same outcome.
const (
	similarEntries, similarBytes = 30, 16 << 10
	outcomeEntries, outcomeBytes = 50, 32 << 10
)

// FoldHistory folds the history entries of an operation, from its first one on: consecutive tries of a step with the same result become one
// entry, also if other steps were repeated between them. The events that a step receives are folded in the same way. The result is in the
// order of the cursors. A part of the entries may be folded already: FoldHistory(FoldHistory(a) + b) equals FoldHistory(a + b). It does not
// modify the entries.
func FoldHistory(history []Entry) []Entry {
	folded := make([]Entry, 0, len(history))
	for len(history) > 0 {
		n := runLength(history)
		folded = appendRun(folded, history[:n])
		history = history[n:]
	}
	return folded
}

// runLength returns the number of entries of the run at the start of a history; 1 for an entry that is in no run.
func runLength(history []Entry) int {
	n := slices.IndexFunc(history, func(e Entry) bool {
		return e.Kind != KindStep && e.Kind != KindEventReceived || e.Stage != history[0].Stage
	})
	if n < 0 {
		return len(history)
	}
	return max(n, 1)
}

// appendRun appends the folded entries of a run.
func appendRun(folded, run []Entry) []Entry {
	from, bytes := len(folded), 0
	// The entries up to the last folded one are the result of an earlier call.
	done := len(run)
	for done > 0 && run[done-1].Folded == nil {
		done--
	}
	for i := range run {
		e := &run[i]
		if i >= done {
			if j := foldsInto(folded[from:], bytes, e); j >= 0 {
				earlier := folded[from+j]
				try := foldTry(&earlier, e)
				bytes += entrySize(&try) - entrySize(&earlier)
				folded = append(slices.Delete(folded, from+j, from+j+1), try)
				continue
			}
		}
		bytes += entrySize(e)
		folded = append(folded, *e)
	}
	return folded
}

// foldsInto returns the index of the entry of a run that another try is folded into; -1 if there is none. bytes is the size of the run.
func foldsInto(run []Entry, bytes int, e *Entry) int {
	similar := len(run) >= similarEntries || bytes >= similarBytes
	byOutcome := len(run) >= outcomeEntries || bytes >= outcomeBytes
	last, newest := true, -1
	for i := len(run) - 1; i >= 0; i-- {
		earlier := &run[i]
		if earlier.Step != e.Step || earlier.Kind != e.Kind {
			continue
		}
		sameOutcome := earlier.Outcome == e.Outcome
		switch sameReason := sameOutcome && sameError(earlier, e); {
		case sameReason && (similar || last && sameText(earlier, e)):
			return i
		case sameOutcome && byOutcome && newest < 0:
			newest = i
		}
		if last = false; !similar {
			break
		}
	}
	return newest
}

// foldTry returns the entry of a try with the earlier tries that it is folded with.
func foldTry(earlier, try *Entry) Entry {
	first := Folded{
		Tries: 1, Cursor: earlier.Cursor, StageAttempt: earlier.StageAttempt, StepAttempt: earlier.StepAttempt, StartedAt: earlier.StartedAt,
	}
	if earlier.Folded != nil {
		first = *earlier.Folded
	}
	first.Tries++
	first.Similar = first.Similar || !sameError(earlier, try) || !sameText(earlier, try)
	e := *try
	e.Folded, e.Saved = &first, mergeSaved(earlier.Saved, try.Saved)
	return e
}

// sameError reports whether the errors of two entries have the same component and reason.
func sameError(a, b *Entry) bool {
	if a.Error == nil || b.Error == nil {
		return a.Error == b.Error
	}
	return a.Error.Component == b.Error.Component && a.Error.Reason == b.Error.Reason
}

// sameText reports whether two entries with the same error have the same messages.
func sameText(a, b *Entry) bool {
	return a.Message == b.Message && (a.Error == nil || a.Error.Message == b.Error.Message)
}

// entrySize returns the size of the texts of an entry and of its changes of the saved data, in bytes.
func entrySize(e *Entry) int {
	size := len(e.Message)
	if e.Error != nil {
		size += len(e.Error.Component) + len(e.Error.Reason) + len(e.Error.Message)
	}
	for worker, s := range e.Saved {
		size += len(worker) + s.size()
	}
	return size
}
