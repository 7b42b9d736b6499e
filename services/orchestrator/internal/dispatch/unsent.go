package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// unsent are the commands that were committed and that the bus has not taken, by the ids of their operations. A command that follows
// from a message goes out when the message comes again; what the clock or an operator has caused does not come again, and would wait until
// the execution limit is over.
type unsent struct {
	mu   sync.Mutex
	byID map[string]unsentCommand
}

type unsentCommand struct {
	cursor   int64
	dispatch int
	// until is when the stream may no longer drop a second copy. Then the limit of the command counts.
	until time.Time
}

func (u *unsent) add(works []*work, until time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, w := range works {
		if !w.row.InFlight() {
			continue
		}
		if u.byID == nil {
			u.byID = map[string]unsentCommand{}
		}
		u.byID[w.row.Operation.ID] = unsentCommand{cursor: w.row.Cursor, dispatch: w.row.Dispatch, until: until}
	}
}

// all forgets what is too old, and returns the rest.
func (u *unsent) all(now time.Time) map[string]unsentCommand {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.byID, func(_ string, c unsentCommand) bool { return now.After(c.until) })
	return maps.Clone(u.byID)
}

func (u *unsent) forget(commands map[string]unsentCommand) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.byID, func(id string, c unsentCommand) bool { return commands[id] == c })
}

// afterAlone is after for works that no message has caused: what the bus does not take is kept for Unsent.
func (d *Dispatcher) afterAlone(ctx context.Context, works []*work, waiting map[string]int) error {
	err := d.after(ctx, works, waiting)
	if err != nil {
		d.keepUnsent(works)
	}
	return err
}

// keepUnsent keeps commands for Unsent, which looks whether they were committed.
func (d *Dispatcher) keepUnsent(works []*work) {
	if len(works) == 0 {
		return
	}
	now := d.deps.Now()
	d.unsent.add(works, now.Add(event.DuplicateWindow))
	d.deps.Wake(now.Add(betweenPublications))
}

// Unsent publishes the commands that the bus has not taken, under the same ids. What has moved on meanwhile is left alone.
func (d *Dispatcher) Unsent(ctx context.Context) error {
	commands := d.unsent.all(d.deps.Now())
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(commands)), d.dueBatch) {
		if err := d.limited(ctx, func(ctx context.Context) error { _, err := d.publishUnsent(ctx, commands, ids); return err }); err != nil {
			d.deps.Wake(d.deps.Now().Add(betweenPublications))
			return fmt.Errorf("publish commands that were not taken: %w", err)
		}
	}
	d.unsent.forget(commands)
	return nil
}

// publishUnsent publishes those of the commands whose operations have not moved on, and returns how many these are.
func (d *Dispatcher) publishUnsent(ctx context.Context, commands map[string]unsentCommand, ids []string) (int, error) {
	rows, err := d.deps.Store.Load(ctx, ids)
	if err != nil {
		return 0, err
	}
	var works []*work
	for _, id := range ids {
		row := rows[id]
		if row == nil || !row.InFlight() || row.Cursor != commands[id].cursor || row.Dispatch != commands[id].dispatch {
			continue
		}
		w, err := d.newWork(ctx, row, true)
		if err != nil {
			if passing(ctx, err) {
				return 0, err
			}
			d.leaveOut(row, err)
			continue
		}
		w.republish = true
		works = append(works, w)
	}
	if err := d.publish(ctx, works); err != nil {
		return 0, err
	}
	return len(works), nil
}
