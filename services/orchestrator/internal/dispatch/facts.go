package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Facts are published at least once. A fact follows from the history, so nothing but a cursor has to be kept about it:
//
//   - The facts of a transition that a message has caused are guarded by the message. It is acknowledged when they are on the bus. When it
//     comes again, they are published again from the history.
//   - The row of any other transition says in facts_after which facts may not be on the bus. That is taken back once they are.
//   - When the bus takes commands and no facts, operations must go on: facts_after is set, and the message is acknowledged.
//   - PublishFacts, with which every sweep ends, publishes what rows say: at a start, after a failure, and once a minute, since another
//     orchestrator may have been killed.
const (
	// factsEvery is the time between two looks for facts that are not published, and factsPause that after a failure.
	factsEvery = time.Minute
	factsPause = 10 * time.Second
	// factsPage is how many operations a look takes up, and linesPage how many lines of each are read at once.
	factsPage = 200
	linesPage = 200
	// replayFor is how long one call of ReplayFacts begins new pages.
	replayFor = 3 * time.Second
)

// lookAt makes sure that rows are looked at, by then, whose facts may not be published.
func (o *outbox) lookAt(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at.Before(o.nextFacts) {
		o.nextFacts = at
	}
}

// factsDue reports whether it is time to look for facts that are not published.
func (o *outbox) factsDue(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Before(o.nextFacts) {
		return false
	}
	o.nextFacts = now.Add(factsEvery)
	return true
}

// settleFacts notes what has become of the facts of works, of which some have failed, and publishes those of messages that have come again. If
// again is set the messages of all works come once more.
func (o *outbox) settleFacts(ctx context.Context, works []*work, failed map[*work]bool, again bool) error {
	var published, unpublished []store.FactRange
	for _, w := range works {
		if len(w.effects.Facts) == 0 {
			continue
		}
		r := store.FactRange{OperationID: w.row.Operation.ID, After: w.base, Through: w.row.Cursor}
		switch {
		case failed[w] && w.guarded && !again:
			unpublished = append(unpublished, r)
		case !failed[w] && !w.guarded:
			published = append(published, r)
		}
	}
	var comeAgain []store.FactRange
	for _, w := range works {
		if w.again != nil {
			comeAgain = append(comeAgain, *w.again)
		}
	}
	if len(comeAgain) > 0 && !again {
		if _, err := o.publishHistory(ctx, comeAgain, time.Time{}); err != nil {
			o.deps.Log.Warn("facts of messages that have come again not published", "operations", len(comeAgain), "err", err)
			unpublished = append(unpublished, comeAgain...)
		}
	}
	if len(unpublished) > 0 || len(failed) > 0 {
		o.lookAt(o.deps.Now().Add(factsPause))
	}
	if err := o.deps.Store.FactsPublished(ctx, published); err != nil {
		o.deps.Log.Warn("facts are published again", "err", err)
		o.lookAt(o.deps.Now().Add(factsPause))
	}
	return o.deps.Store.FactsUnpublished(ctx, merged(unpublished))
}

// merged keeps the earliest range of each operation.
func merged(ranges []store.FactRange) []store.FactRange {
	first := map[string]int{}
	var kept []store.FactRange
	for _, r := range ranges {
		i, ok := first[r.OperationID]
		if !ok {
			first[r.OperationID] = len(kept)
			kept = append(kept, r)
			continue
		}
		kept[i].After = min(kept[i].After, r.After)
	}
	return kept
}

// PublishFacts publishes facts that rows say may not be on the bus, if it is time for that.
func (d *Dispatcher) PublishFacts(ctx context.Context) error {
	now := d.deps.Now()
	if !d.outbox.factsDue(now) {
		return nil
	}
	err := d.limited(ctx, func(ctx context.Context) error {
		ranges, err := d.deps.Store.Unpublished(ctx, now.Add(-event.FactsKept), factsPage)
		if err != nil || len(ranges) == 0 {
			return err
		}
		if len(ranges) == factsPage {
			d.outbox.lookAt(now) // there may be more
		}
		n, err := d.outbox.publishHistory(ctx, ranges, time.Time{})
		if err != nil {
			return err
		}
		d.log.Info("facts published again", "operations", len(ranges), "facts", n)
		return d.deps.Store.FactsPublished(ctx, ranges)
	})
	if err != nil {
		d.outbox.lookAt(now.Add(factsPause))
		// Operations do not wait for facts, so that the bus takes none must not look as if it were away.
		return fmt.Errorf("publish facts again: %s", err.Error())
	}
	return nil
}

// publishHistory publishes the facts of parts of histories that occurred since a time, and returns how many there were. It sets Through of
// a range to the cursor that the operation had, unless it is set.
func (o *outbox) publishHistory(ctx context.Context, ranges []store.FactRange, since time.Time) (published int, err error) {
	ids := make([]string, 0, len(ranges))
	for i := range ranges {
		ids = append(ids, ranges[i].OperationID)
	}
	rows, err := o.deps.Store.Load(ctx, ids)
	if err != nil {
		return 0, err
	}
	works := make(map[string]*work, len(rows))
	todo := make([]store.FactRange, 0, len(ranges))
	for i := range ranges {
		r := &ranges[i]
		row := rows[r.OperationID]
		if row == nil {
			continue // it is archived
		}
		if works[r.OperationID] == nil {
			w, err := o.open(ctx, row)
			if err != nil {
				if passing(ctx, err) {
					return 0, err
				}
				leaveOut(o.deps.Log, row, err)
				continue
			}
			works[r.OperationID] = w
		}
		if r.Through == 0 {
			r.Through = row.Cursor
		}
		todo = append(todo, *r)
	}
	for len(todo) > 0 {
		lines, err := o.deps.Store.LinesAfter(ctx, todo, linesPage)
		if err != nil {
			return published, err
		}
		var messages []bus.Message
		var rest []store.FactRange
		for _, r := range todo {
			w := works[r.OperationID]
			found := lines[r.OperationID]
			through := min(r.Through, w.row.Cursor)
			if len(found) == linesPage {
				// The last line is read again with those that follow it: they say where the operation went.
				through = min(through, found[len(found)-2].Cursor)
				rest = append(rest, store.FactRange{OperationID: r.OperationID, After: through, Through: r.Through})
			}
			messages = o.factsOf(messages, w, found, through, since)
		}
		if err := o.publishFacts(ctx, messages); err != nil {
			return published, err
		}
		published += len(messages)
		todo = rest
	}
	return published, nil
}

// factsOf appends the messages of the facts of lines that occurred since a time, up to a cursor.
func (o *outbox) factsOf(messages []bus.Message, w *work, lines []engine.Entry, through int64, since time.Time) []bus.Message {
	facts := engine.Facts(w.process, &w.row.State, lines)
	for i := range facts {
		if facts[i].Cursor > through || facts[i].OccurredAt.Before(since) {
			continue
		}
		m, err := o.fact(w, &facts[i])
		if err != nil {
			o.metrics.factsLost.Inc()
			o.deps.Log.Error("fact cannot be published", "err", err)
			continue
		}
		messages = append(messages, m)
	}
	return messages
}

// publishFacts publishes facts. One that is too large can never be published, and is no error.
func (o *outbox) publishFacts(ctx context.Context, messages []bus.Message) error {
	err := o.deps.Publisher.Publish(ctx, messages...)
	failed, ok := errors.AsType[*bus.PublishError](err)
	if !ok {
		return err
	}
	for _, f := range failed.Failures {
		if _, is := errors.AsType[*bus.TooLargeError](f.Err); !is {
			return err
		}
	}
	o.metrics.factsLost.Add(float64(len(failed.Failures)))
	o.deps.Log.Error("facts cannot be published", "err", err)
	return nil
}

// ReplayFacts publishes again the facts that occurred since a time, operation by operation in the order of their ids and behind one of them,
// for a few seconds. It returns how many it has published, and the operation behind which to go on; empty when there are no more. Facts of
// archived operations are not published. It may be repeated.
func (d *Dispatcher) ReplayFacts(ctx context.Context, since time.Time, behind string) (published int, next string, err error) {
	if behind == "" {
		behind = beforeAll
	}
	for begun := time.Now(); time.Since(begun) < replayFor; {
		ids, err := d.deps.Store.ActiveSince(ctx, since, behind, factsPage)
		if err != nil {
			return published, "", fmt.Errorf("publish facts again: %w", err)
		}
		ranges := make([]store.FactRange, len(ids))
		for i, id := range ids {
			ranges[i] = store.FactRange{OperationID: id}
		}
		n, err := d.outbox.publishHistory(ctx, ranges, since)
		published += n
		if err != nil {
			return published, "", fmt.Errorf("publish facts again: %w", err)
		}
		if len(ids) < factsPage {
			return published, "", nil
		}
		behind = ids[len(ids)-1]
	}
	return published, behind, nil
}
