package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// recent returns the commands of a page that are recent enough for the stream to drop a second copy, and their operation ids in order.
// The bus has kept all messages since keptSince. As clocks differ, a command that was sent shortly after that may have gone to a lost
// stream, so that the new one would not drop a second copy: it is left out if held reports that a worker has it.
func (o *outbox) recent(ctx context.Context, page []store.SentCommand, keptSince time.Time, held Held) (commands map[string]command, ids []string, err error) {
	now := o.deps.Now()
	oldest := now.Add(-republishWithin)
	commands = map[string]command{}
	for i := range page {
		c := &page[i]
		p, err := o.deps.Definitions.Pinned(ctx, c.Definition)
		if err != nil {
			if isTransient(ctx, err) {
				return nil, nil, err
			}
			continue // the next sweep that finds the operation reports the error
		}
		sent := lastSent(p, c)
		if !sent.After(oldest) || sent.Before(keptSince) || sent.After(now.Add(clockSkew)) || !now.Before(c.ExecuteBefore) {
			continue
		}
		worker := p.Stages[c.Stage].Steps[c.Step].Worker
		if !sent.After(keptSince.Add(clockSkew)) && held(worker, event.CommandID(c.OperationID, c.Cursor)) {
			continue
		}
		commands[c.OperationID] = command{cursor: c.Cursor, dispatch: c.Dispatch}
		ids = append(ids, c.OperationID)
	}
	return commands, ids, nil
}

// lastSent returns the time at which a command was last sent.
func lastSent(p *process.Process, c *store.SentCommand) time.Time {
	again := c.ExecuteBefore.Add(-c.Extended - p.Stages[c.Stage].Steps[c.Step].Execution)
	if again.After(c.SentAt) {
		return again
	}
	return c.SentAt
}

// Drain publishes the commands in the outbox. After an error some commands are still unpublished. The caller should then process nothing
// else, because its commands could not be published either.
func (d *Dispatcher) Drain(ctx context.Context) error {
	commands := d.outbox.pending(d.deps.Now())
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(commands)), d.dueBatch) {
		current := d.outbox.pending(d.deps.Now()) // others may have lapsed during the last page
		maps.DeleteFunc(commands, func(id string, c command) bool { return current[id] != c })
		err := d.withBatchTimeout(ctx, func(ctx context.Context) error {
			_, err := d.publishAgain(ctx, commands, ids)
			return err
		})
		if err != nil {
			d.deps.Wake(d.deps.Now().Add(republishPause))
			return fmt.Errorf("publish unconfirmed commands: %w", err)
		}
	}
	d.outbox.remove(commands) // including those of operations that have moved on
	return nil
}

// Lapsed returns the last time at which a command left the outbox although the bus had not confirmed it, because the stream may no longer drop
// a second copy. It is zero if there was none. Whether the bus has the command is unknown: it may even store it later.
func (d *Dispatcher) Lapsed() time.Time {
	d.outbox.mu.Lock()
	defer d.outbox.mu.Unlock()
	return d.outbox.lapsed
}

// publishAgain publishes the commands of operations that have not moved on, and returns their number.
func (d *Dispatcher) publishAgain(ctx context.Context, commands map[string]command, ids []string) (int, error) {
	works, err := d.outbox.currentWorks(ctx, commands, ids)
	if err != nil {
		return 0, err
	}
	if _, err := d.carryOut(ctx, works, nil); err != nil {
		return 0, err
	}
	return len(works), nil
}

// AfterStart publishes recent commands again under the same ids, and returns their number. An orchestrator that was killed may have
// committed them without publishing them; the stream drops the copies of published ones. The bus has kept all messages since keptSince.
// It skips commands from the creation of the stream that a worker has. Older commands are sent again at their limits, because the stream may
// have forgotten their ids. AfterStart writes nothing, so any number of orchestrators may call it concurrently and repeatedly.
func (d *Dispatcher) AfterStart(ctx context.Context, keptSince time.Time, held Held) (published int, err error) {
	after := minID
	for {
		page, err := query(ctx, d, func(ctx context.Context) ([]store.SentCommand, error) {
			return d.deps.Store.SentCommands(ctx, after, d.dueBatch)
		})
		if err == nil {
			err = withTimeout(ctx, pageTimeout, func(ctx context.Context) error {
				commands, ids, err := d.outbox.recent(ctx, page, keptSince, held)
				if err != nil {
					return err
				}
				n, err := d.publishAgain(ctx, commands, ids)
				published += n
				return err
			})
		}
		if err != nil {
			return published, fmt.Errorf("publish commands again after a start: %w", err)
		}
		if len(page) < d.dueBatch {
			return published, nil
		}
		after = page[len(page)-1].OperationID
	}
}

const (
	// minID sorts before every operation id.
	minID = "00000000-0000-0000-0000-000000000000"
	// maxExecution is the maximum execution time of a step whose command AfterLoss finds. A command with more time is sent again at its
	// own limit.
	maxExecution = 24 * time.Hour
)

// Held reports whether a worker has a command: it executes it, has fetched it, or does not answer.
type Held = func(worker, commandID string) bool

// AfterLoss sends the commands of operations in flight again that were sent before a time at which the bus lost its messages, or only the
// results if resultsOnly is set. It skips commands for which held reports that a worker still has them, and those whose rows another
// transaction has locked: they are sent again at their limits. It returns the number of sent commands, and of commands that were not sent
// because no worker serves their step. Several orchestrators may call it concurrently and repeatedly: a command that was sent after that
// time is not sent again. After an error some commands may be in the outbox; call AfterLoss again for the rest.
func (d *Dispatcher) AfterLoss(ctx context.Context, before time.Time, resultsOnly bool, held Held) (sent, unserved int, err error) {
	until := before.Add(maxExecution)
	// After the start of an orchestrator there is almost always nothing to do.
	found, err := query(ctx, d, func(ctx context.Context) (bool, error) { return d.deps.Store.AnyInFlight(ctx, until) })
	if err != nil || !found {
		return 0, 0, err
	}
	if err := d.Drain(ctx); err != nil { // new commands could not be published either
		return 0, 0, err
	}
	after := minID
	for {
		last, again, noWorker := "", 0, 0
		_, _, err := d.wakeBatch(ctx, d.dueBatch, func(ctx context.Context, tx Tx, _ time.Time, limit int) ([]string, error) {
			ids, err := tx.InFlight(ctx, until, after, limit)
			if len(ids) > 0 {
				last = ids[len(ids)-1]
			}
			return ids, err
		}, func(w *work, now time.Time) error {
			worker, command := engine.Command(w.process, &w.row.State)
			if held(worker, event.CommandID(w.row.Operation.ID, command.Cursor)) {
				return engine.ErrNotPossible
			}
			err := d.resendLost(w, now, before, resultsOnly)
			switch {
			case errors.Is(err, engine.ErrNoWorker):
				noWorker++
			case err == nil && w.effects.Dispatch:
				again++
			}
			return err
		})
		if err != nil {
			return sent, unserved, fmt.Errorf("send lost commands again: %w", err)
		}
		sent, unserved = sent+again, unserved+noWorker
		if last == "" {
			return sent, unserved, nil
		}
		after = last
	}
}
