package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Facts are published at least once. They can be derived from the history, so only a cursor is stored for them:
//
//   - A transition that was caused by a message needs no cursor: the message is acknowledged after the facts are on the bus. If it is
//     redelivered, the facts are published again from the history.
//   - Any other transition sets facts_after, the cursor after which facts may not be on the bus. The sweep after the publication clears it
//     for all operations at once: an operation does not wait for this commit, and a crash before it only publishes the facts again.
//   - If the bus accepts commands but no facts, operations continue: facts_after is set, and the message is acknowledged. If it does not even
//     answer, facts are not tried for factsPause: a batch that waits for them is redelivered, and its facts, too, would then be sent again and again.
//   - PublishFacts publishes the facts of rows with facts_after: after a start, after a failure, and once a minute, because another
//     orchestrator may have been killed. It is not part of the sweep, which would wait for a stream of facts that does not answer.
const (
	// runFactsEvery is the interval of RunFacts, factsEvery that of checks for unpublished facts, and factsPause the pause after a failure.
	runFactsEvery = time.Second
	factsEvery    = time.Minute
	factsPause    = 10 * time.Second
	// factsPage is the number of operations per check, and entriesPage the number of history entries read per operation at once.
	factsPage   = 200
	entriesPage = 200
	// replayPage is the number of operations that ReplayFacts reads at once; each read looks through all operations since its time. replayFor is the
	// time after which a call starts no further page of factsPage operations.
	replayPage = 5000
	replayFor  = 3 * time.Second
)

// pauseFacts leaves the facts of works to the next check.
func (o *outbox) pauseFacts() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.factsPausedUntil = o.deps.Now().Add(factsPause)
}

func (o *outbox) factsPaused() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.deps.Now().Before(o.factsPausedUntil)
}

// scheduleFacts makes sure that the next check for unpublished facts happens no later than at.
func (o *outbox) scheduleFacts(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at.Before(o.nextFacts) {
		o.nextFacts = at
	}
}

// factsDue reports whether a check for unpublished facts is due, and schedules the next one.
func (o *outbox) factsDue(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Before(o.nextFacts) {
		return false
	}
	o.nextFacts = now.Add(factsEvery)
	return true
}

// settleFacts stores which facts of works are published, and publishes the facts of redelivered messages. failed holds the works whose
// facts were not published. If redeliver is set, the messages of all works will be redelivered.
func (o *outbox) settleFacts(ctx context.Context, works []*work, failed map[*work]bool, redeliver bool) error {
	var published, unpublished []store.FactRange
	for _, w := range works {
		if len(w.effects.Facts) == 0 {
			continue
		}
		r := store.FactRange{OperationID: w.row.Operation.ID, After: w.base, Through: w.row.Cursor}
		switch {
		case failed[w] && w.hasMessage && !redeliver:
			unpublished = append(unpublished, r)
		case !failed[w] && !w.hasMessage:
			published = append(published, r)
		}
	}
	var redelivered []store.FactRange
	for _, w := range works {
		if w.redelivered != nil {
			redelivered = append(redelivered, *w.redelivered)
		}
	}
	switch {
	case len(redelivered) == 0 || redeliver:
	case o.factsPaused():
		unpublished = append(unpublished, redelivered...)
	default:
		if _, err := o.publishHistory(ctx, redelivered, time.Time{}); err != nil {
			o.deps.Log.Warn("facts of redelivered messages not published", "operations", len(redelivered), "err", err)
			unpublished = append(unpublished, redelivered...)
		}
	}
	if len(unpublished) > 0 || len(failed) > 0 {
		o.scheduleFacts(o.deps.Now().Add(factsPause))
	}
	o.mu.Lock()
	o.published = append(o.published, published...)
	o.mu.Unlock()
	return o.deps.Store.FactsUnpublished(ctx, merged(unpublished))
}

// RecordFacts clears facts_after of operations whose facts were published since the last call. It logs errors.
func (d *Dispatcher) RecordFacts(ctx context.Context) {
	d.outbox.mu.Lock()
	published := d.outbox.published
	d.outbox.published = nil
	d.outbox.mu.Unlock()
	for page := range slices.Chunk(joined(published), factsPage) {
		err := d.withBatchTimeout(ctx, func(ctx context.Context) error { return d.deps.Store.FactsPublished(ctx, page) })
		if err != nil {
			d.log.Warn("publication of facts not recorded; they will be published again", "err", err)
			d.outbox.scheduleFacts(d.deps.Now().Add(factsPause))
			return
		}
	}
}

// joined joins the ranges of each operation that follow each other without a gap, from its first one on. Another orchestrator may have
// failed to publish what is in a gap, so the ranges behind it are left to the next check.
func joined(ranges []store.FactRange) []store.FactRange {
	first := map[string]int{}
	var kept []store.FactRange
	for _, r := range ranges {
		i, ok := first[r.OperationID]
		switch {
		case !ok:
			first[r.OperationID] = len(kept)
			kept = append(kept, r)
		case kept[i].Through == r.After:
			kept[i].Through = r.Through
		}
	}
	return kept
}

// merged merges the ranges of each operation into one that starts with the earliest.
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

// RunFacts publishes facts and folds histories until ctx ends.
func (d *Dispatcher) RunFacts(ctx context.Context) error {
	tick := time.NewTicker(runFactsEvery)
	defer tick.Stop()
	for {
		if err := errors.Join(d.PublishFacts(ctx), d.FoldHistories(ctx)); err != nil && ctx.Err() == nil {
			d.log.Warn("facts not published or histories not folded; retrying", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// PublishFacts publishes the facts of rows with facts_after, if a check is due.
func (d *Dispatcher) PublishFacts(ctx context.Context) error {
	now := d.deps.Now()
	if !d.outbox.factsDue(now) {
		return nil
	}
	err := d.withBatchTimeout(ctx, func(ctx context.Context) error {
		ranges, err := d.deps.Store.Unpublished(ctx, now.Add(-event.FactsKept), factsPage)
		if err != nil || len(ranges) == 0 {
			return err
		}
		if len(ranges) == factsPage {
			d.outbox.scheduleFacts(now) // there may be more
		}
		n, err := d.outbox.publishHistory(ctx, ranges, time.Time{})
		if err != nil {
			return err
		}
		d.log.Info("facts published again", "operations", len(ranges), "facts", n)
		return d.deps.Store.FactsPublished(ctx, ranges)
	})
	if err != nil {
		d.outbox.scheduleFacts(now.Add(factsPause))
		return fmt.Errorf("publish facts again: %w", err)
	}
	return nil
}

// publishHistory publishes the facts of history ranges that occurred since a time, and returns their number. It sets Through of a range
// to the current cursor of the operation if it is zero.
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
			continue // the operation is archived
		}
		if works[r.OperationID] == nil {
			w, err := o.newWork(ctx, row)
			if err != nil {
				if isTransient(ctx, err) {
					return 0, err
				}
				logStuck(o.deps.Log, row, err)
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
		entries, err := o.deps.Store.EntriesAfter(ctx, todo, entriesPage)
		if err != nil {
			return published, err
		}
		var messages []bus.Message
		var rest []store.FactRange
		for _, r := range todo {
			w := works[r.OperationID]
			found := entries[r.OperationID]
			through := min(r.Through, w.row.Cursor)
			// The last entry is read again with the next page, because the next entry holds the next position of the operation.
			if len(found) == entriesPage && found[len(found)-2].Cursor < through {
				through = found[len(found)-2].Cursor
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

// factsOf appends the messages of the facts of entries that occurred since a time, up to a cursor.
func (o *outbox) factsOf(messages []bus.Message, w *work, entries []engine.Entry, through int64, since time.Time) []bus.Message {
	facts := engine.Facts(w.process, &w.row.State, entries)
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

// publishFacts publishes facts. A fact that is too large is logged and is not an error, because it can never be published.
func (o *outbox) publishFacts(ctx context.Context, messages []bus.Message) error {
	err := o.deps.Publisher.Publish(ctx, messages...)
	if err == nil {
		return nil
	}
	failed := bus.Unpublished(err, len(messages))
	for _, cause := range failed {
		if _, ok := errors.AsType[*bus.TooLargeError](cause); !ok {
			if errors.Is(cause, context.DeadlineExceeded) {
				o.pauseFacts()
			}
			return err
		}
	}
	o.metrics.factsLost.Add(float64(len(failed)))
	o.deps.Log.Error("facts cannot be published", "err", err)
	return nil
}

// ReplayFacts publishes the facts that occurred since a time again, for a few seconds. It goes through the operations with an id greater
// than after, in the order of their ids. It returns the number of published facts, and the id to pass as after in the next call; empty
// at the end. It does not publish facts of archived operations. It may be repeated.
func (d *Dispatcher) ReplayFacts(ctx context.Context, since time.Time, after string) (published int, next string, err error) {
	if after == "" {
		after = minID
	}
	for begun := time.Now(); ; {
		ids, err := d.deps.Store.ActiveSince(ctx, since, after, replayPage)
		if err != nil {
			return published, "", fmt.Errorf("publish facts again: %w", err)
		}
		for page := range slices.Chunk(ids, factsPage) {
			ranges := make([]store.FactRange, len(page))
			for i, id := range page {
				ranges[i] = store.FactRange{OperationID: id}
			}
			n, err := d.outbox.publishHistory(ctx, ranges, since)
			published += n
			if err != nil {
				return published, "", fmt.Errorf("publish facts again: %w", err)
			}
			if after = page[len(page)-1]; time.Since(begun) >= replayFor {
				return published, after, nil
			}
		}
		if len(ids) < replayPage {
			return published, "", nil
		}
	}
}
