package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Backlog returns which messages a stream holds.
type Backlog interface {
	Range(ctx context.Context, name event.Stream) (bus.StreamRange, error)
}

const (
	// foldAfter is the number of cursors after which the history of an operation that repeats a step is folded.
	foldAfter = 20
	// foldAtOnce is the maximum number of histories in one transaction, and foldEntries the number of entries read of each.
	foldAtOnce  = 100
	foldEntries = 1000
)

// folder folds the stored histories of operations that repeat a step. Facts are derived from the history, so only entries whose facts are
// published may be folded: facts_after excludes those of transitions without a message. For those of transitions with a message, the
// folder remembers which messages the streams hold, and waits until they are gone: a message is acknowledged after its facts are
// published. That covers the messages of all orchestrators, and those that are redelivered after a crash.
type folder struct {
	mu sync.Mutex
	// noted has the current cursor of operations to fold, by id.
	noted map[string]int64
	// The following fields are used only by FoldHistories, which is not called concurrently.
	// marked are operations whose entries are folded once the streams do not hold any message of mark.
	marked map[string]int64
	mark   [len(messageStreams)]bus.StreamRange
}

// messageStreams are the streams of the messages that cause transitions.
var messageStreams = [...]event.Stream{event.StreamRequests, event.StreamResults}

// note notes an operation that repeats a step, once in a while.
func (f *folder) note(w *work, every int64) {
	if w.change == nil || w.row.Condition == "" || w.row.Cursor/every == w.base/every {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noted == nil {
		f.noted = map[string]int64{}
	}
	f.noted[w.row.Operation.ID] = w.row.Cursor
}

// FoldHistories folds the histories of operations that repeat a step, as far as their facts are published.
func (d *Dispatcher) FoldHistories(ctx context.Context) error {
	f := &d.folder
	f.mu.Lock()
	idle := len(f.noted) == 0 && len(f.marked) == 0
	f.mu.Unlock()
	if idle || d.deps.Backlog == nil {
		return nil
	}
	return d.withBatchTimeout(ctx, func(ctx context.Context) error {
		if err := d.foldMarked(ctx); err != nil {
			return fmt.Errorf("fold histories: %w", err)
		}
		return nil
	})
}

func (d *Dispatcher) foldMarked(ctx context.Context) error {
	f := &d.folder
	// The operations are taken before the streams are read: the messages of their transitions are in the streams by then.
	var noted map[string]int64
	if len(f.marked) == 0 {
		f.mu.Lock()
		noted, f.noted = f.noted, nil
		f.mu.Unlock()
	}
	ranges, err := d.readRanges(ctx)
	if err != nil {
		f.renote(noted)
		return err
	}
	if len(f.marked) == 0 {
		f.marked, f.mark = noted, ranges
	}
	for i := range ranges {
		switch {
		case !ranges[i].Created.Equal(f.mark[i].Created): // the numbers start again
			f.mark = ranges
			return nil
		case ranges[i].First <= f.mark[i].Last:
			return nil
		}
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(f.marked)), foldAtOnce) {
		if err := d.foldBatch(ctx, ids); err != nil {
			return err
		}
	}
	return nil
}

// renote notes operations again.
func (f *folder) renote(noted map[string]int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, cursor := range noted {
		if f.noted == nil {
			f.noted = map[string]int64{}
		}
		f.noted[id] = max(f.noted[id], cursor)
	}
}

func (d *Dispatcher) readRanges(ctx context.Context) (ranges [len(messageStreams)]bus.StreamRange, err error) {
	for i, name := range messageStreams {
		if ranges[i], err = d.deps.Backlog.Range(ctx, name); err != nil {
			return ranges, err
		}
	}
	return ranges, nil
}

// foldBatch folds the histories of marked operations in one transaction, and removes them from the marked ones. They stay marked while another
// orchestrator folds histories.
func (d *Dispatcher) foldBatch(ctx context.Context, ids []string) error {
	f := &d.folder
	through, more := map[string]int64{}, map[string]int64{}
	for _, id := range ids {
		through[id] = f.marked[id]
	}
	free := false
	err := d.deps.Store.InTx(ctx, func(tx Tx) error {
		found, ok, err := tx.Foldable(ctx, through, foldEntries)
		if free = ok; err != nil || !ok {
			return err
		}
		var folds []store.Fold
		for _, id := range ids {
			if len(found[id]) == foldEntries {
				more[id] = through[id]
			}
			if fold := foldOf(id, found[id]); len(fold.Removed) > 0 {
				folds = append(folds, fold)
			}
		}
		if len(folds) == 0 {
			return nil
		}
		return tx.FoldHistories(ctx, folds)
	})
	if err != nil || !free {
		return err
	}
	for _, id := range ids {
		delete(f.marked, id)
	}
	f.renote(more)
	return nil
}

// foldOf returns the change that folds the entries of a history.
func foldOf(id string, history []engine.Entry) store.Fold {
	fold := store.Fold{OperationID: id}
	folded := engine.FoldHistory(history)
	j := 0
	for i := range history {
		e := &history[i]
		if j == len(folded) || folded[j].Cursor != e.Cursor {
			fold.Removed = append(fold.Removed, e.Cursor)
			continue
		}
		if folded[j].Tries() != e.Tries() {
			fold.Entries = append(fold.Entries, folded[j])
		}
		j++
	}
	return fold
}
