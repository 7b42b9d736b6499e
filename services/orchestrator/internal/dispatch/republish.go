package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// republishWithin is how long after it was sent a command is published once more. Beyond the duplicate window the stream would take
	// a second copy of what a worker may be executing: the rest of it is for the publication, and for clocks that differ.
	republishWithin = event.DuplicateWindow - pageTimeout - clocksDiffer
	// pageTimeout bounds the publication of one page of commands.
	pageTimeout = 5 * time.Second
	// clocksDiffer is how far the clocks of orchestrators and the bus may be apart.
	clocksDiffer = 5 * time.Second
)

// Republish publishes once more, under the same ids, the commands that were sent a moment ago and after a time since which the bus has
// kept what it was given, and returns how many there were. An orchestrator that was killed may have committed them and not published
// them; those that the stream has it drops. Older ones are left to their limits, as the stream may have forgotten them, and so is what
// moves on meanwhile. Nothing is written, so any number of orchestrators may do it at once, and again.
func (d *Dispatcher) Republish(ctx context.Context, after time.Time) (published int, err error) {
	behind := beforeAll
	for {
		var page []store.Out
		err := d.limited(ctx, func(ctx context.Context) (err error) {
			page, err = d.deps.Store.Out(ctx, behind, d.dueBatch)
			return err
		})
		if err == nil {
			var n int
			err = within(ctx, pageTimeout, func(ctx context.Context) (err error) {
				n, err = d.republish(ctx, page, after)
				return err
			})
			published += n
		}
		if err != nil {
			return published, fmt.Errorf("publish commands once more: %w", err)
		}
		if len(page) < d.dueBatch {
			return published, nil
		}
		behind = page[len(page)-1].OperationID
	}
}

// republish publishes those of a page that are young enough now: a page is published within pageTimeout.
func (d *Dispatcher) republish(ctx context.Context, page []store.Out, after time.Time) (int, error) {
	now := d.deps.Now()
	oldest := now.Add(-republishWithin)
	if after = after.Add(clocksDiffer); after.After(oldest) {
		oldest = after
	}
	commands := map[string]unsentCommand{}
	var ids []string
	for i := range page {
		out := &page[i]
		p, err := d.deps.Definitions.Pinned(ctx, out.Definition)
		if err != nil {
			if passing(ctx, err) {
				return 0, err
			}
			continue // whoever takes the operation up tells of it
		}
		sent := lastSent(p, out)
		if !sent.After(oldest) || sent.After(now.Add(clocksDiffer)) || !now.Before(out.ExecuteBefore) {
			continue
		}
		commands[out.OperationID] = unsentCommand{cursor: out.Cursor, dispatch: out.Dispatch}
		ids = append(ids, out.OperationID)
	}
	return d.publishUnsent(ctx, commands, ids)
}

// lastSent is when a command was sent last. One that was sent again shortly before the deadline of its operation seems to be older than
// it is.
func lastSent(p *process.Process, out *store.Out) time.Time {
	again := out.ExecuteBefore.Add(-p.Stages[out.Stage].Steps[out.Step].Execution)
	if again.After(out.SentAt) {
		return again
	}
	return out.SentAt
}
