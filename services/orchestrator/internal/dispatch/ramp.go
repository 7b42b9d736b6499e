package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// AfterRamp sends the commands of operations in flight again that were sent before a time to the ramped replicas of a worker. The caller has
// deleted them from the bus. ramped reports whether an operation went to those replicas, and held whether a replica may have a command that was
// last sent at a time. It returns the number of sent commands, and of commands that are left: a replica may have them, no other replica lives, or
// another transaction has locked their rows. Several orchestrators may call it concurrently and repeatedly. A command that went to another replica shortly before
// that time, and that no replica has fetched yet, gets a second copy.
func (d *Dispatcher) AfterRamp(ctx context.Context, worker string, before time.Time, ramped func(op *event.Operation, startedAt time.Time) bool,
	held func(commandID string, sentAt time.Time) bool,
) (sent, left int, err error) {
	var ids []string
	for after := minID; after != ""; {
		var commands []store.SentCommand
		var rows map[string]*store.Row
		err := d.withBatchTimeout(ctx, func(ctx context.Context) (err error) {
			commands, rows, after, err = d.sentBefore(ctx, worker, before, after)
			return err
		})
		if err != nil {
			return 0, 0, fmt.Errorf("read commands of removed ramps: %w", err)
		}
		for i := range commands {
			id := commands[i].OperationID
			if row := rows[id]; row == nil || !ramped(&row.Operation, row.StartedAt) {
				continue
			}
			left++
			if !held(event.CommandID(id, commands[i].Cursor), commands[i].SentAt) {
				ids = append(ids, id)
			}
		}
	}
	if len(ids) == 0 {
		return 0, left, nil
	}
	if err := d.Drain(ctx); err != nil { // new commands could not be published either
		return 0, left, err
	}
	for part := range slices.Chunk(ids, d.dueBatch) {
		again := 0
		_, _, err := d.wakeBatch(ctx, d.dueBatch, func(ctx context.Context, tx Tx, _ time.Time, _ int) ([]string, error) {
			return tx.LockAll(ctx, part)
		}, func(w *work, now time.Time) error {
			err := d.resendLost(w, now, before, true)
			if err == nil && w.effects.Dispatch {
				again++
			}
			return err
		})
		if err != nil {
			return sent, left, fmt.Errorf("send commands of removed ramps again: %w", err)
		}
		sent += again
	}
	return sent, left - sent, nil
}

// sentBefore returns the commands for a worker that were last sent before a time, of one page of all commands in flight, with their operations.
// It locks nothing, so that no command is overlooked. SentAt of a command is when it was last sent. next is the start of the next page; empty if
// there is none.
func (d *Dispatcher) sentBefore(ctx context.Context, worker string, before time.Time, after string) (
	commands []store.SentCommand, rows map[string]*store.Row, next string, err error,
) {
	page, err := d.deps.Store.SentCommands(ctx, after, d.dueBatch)
	if err != nil {
		return nil, nil, "", err
	}
	var ids []string
	for i := range page {
		c := &page[i]
		p, err := d.deps.Definitions.Pinned(ctx, c.Definition)
		switch {
		case err != nil && isTransient(ctx, err):
			return nil, nil, "", err
		case err != nil: // the next sweep that finds the operation reports the error
		case p.Stages[c.Stage].Steps[c.Step].Worker == worker && lastSent(p, c).Before(before):
			c.SentAt = lastSent(p, c)
			commands, ids = append(commands, *c), append(ids, c.OperationID)
		}
	}
	if len(page) == d.dueBatch {
		next = page[len(page)-1].OperationID
	}
	rows, err = d.deps.Store.Load(ctx, ids)
	return commands, rows, next, err
}

// resendLost sends a command again that the bus has lost, if it was sent before a time.
func (d *Dispatcher) resendLost(w *work, now, before time.Time, resultsOnly bool) error {
	if !w.row.InFlight() { // a result came between the read and the lock
		return engine.ErrNotPossible
	}
	worker, command := engine.Command(w.process, &w.row.State)
	alive, _ := d.serves(&w.row.Operation, w.row.StartedAt, worker, command.Step)
	return w.apply(engine.Due{WorkerAlive: alive, LostBefore: before, ResultsOnly: resultsOnly}, now)
}
