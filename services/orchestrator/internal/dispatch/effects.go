package dispatch

import (
	"context"
	"slices"

	"github.com/kyma-project/keb/libs/event"
)

// freed is what ended operations have made available to waiting ones.
type freed struct {
	// instances are free instances that operations wait for.
	instances []string
	// capacity means that one of the ended operations had a place in a limit.
	capacity bool
}

// add adds an operation if it has ended; waiting means that other operations wait for its instance.
func (f *freed) add(d *Dispatcher, w *work, waiting bool) {
	if !w.row.Status.Final() {
		return
	}
	f.capacity = f.capacity || d.freesCapacity(w)
	if waiting {
		f.instances = append(f.instances, w.row.Operation.InstanceID)
	}
}

// after carries out the effects of committed works, and then starts operations that waited for the instances that became free.
func (d *Dispatcher) after(ctx context.Context, works []*work, waiting map[string]int) error {
	free, err := d.carryOut(ctx, works, waiting)
	if err != nil {
		return err
	}
	d.admitFreed(ctx, free)
	d.deliverEarly(ctx, works)
	d.forgetUsers(ctx, works) // last, because nothing waits for it
	return nil
}

// admitFreed starts operations that waited for freed instances and capacity. After an error the sweep starts them.
func (d *Dispatcher) admitFreed(ctx context.Context, free freed) {
	if len(free.instances) > 0 {
		if err := d.admitInstances(ctx, free.instances); err != nil {
			d.log.Warn("pending operations not started", "err", err)
		}
	}
	if free.capacity {
		d.admitSoon()
	}
}

// carryOut carries out the effects of committed works: it publishes messages, purges stage memory and schedules sweeps. It returns what
// became free, and starts no operation.
func (d *Dispatcher) carryOut(ctx context.Context, works []*work, waiting map[string]int) (free freed, err error) {
	failed, err := d.outbox.send(ctx, works)
	for _, w := range failed {
		free.add(d, w, true)
	}
	if err != nil {
		return freed{}, err // the sweep starts waiting operations
	}
	var gone []string
	for _, w := range slices.Concat(works, failed) {
		if w.change == nil {
			continue
		}
		if w.row.Waiting() {
			d.deps.Wake(w.row.DueAt)
		}
		for _, stage := range w.effects.PurgeStages {
			d.deps.Purger.Purge(w.row.Operation.ID, stage)
		}
		if w.change.Release == nil {
			continue
		}
		others := waiting[w.row.Operation.ID] > 0
		free.add(d, w, others)
		if !others && w.change.Release.Gone {
			gone = append(gone, w.row.Operation.InstanceID)
		}
	}
	if len(gone) > 0 {
		if err := d.deps.Store.DropInstances(ctx, gone); err != nil {
			d.log.Warn("instances not forgotten", "err", err)
		}
	}
	return free, nil
}

// forgetUsers deletes personal data once an instance is deprovisioned. It also runs when the last result is redelivered, because the
// first delivery may have ended in a crash.
func (d *Dispatcher) forgetUsers(ctx context.Context, works []*work) {
	var ended []string
	for _, w := range works {
		if w.change == nil && !w.republish {
			continue
		}
		s := &w.row.State
		removed := s.Operation.Type == event.Deprovision && !s.Operation.Temporary
		if removed && s.Status == event.Succeeded && len(s.NotCompleted) == 0 {
			ended = append(ended, s.Operation.ID)
		}
	}
	if len(ended) == 0 {
		return
	}
	if err := d.deps.Store.ForgetUsers(ctx, ended); err != nil {
		d.log.Warn("users not forgotten", "err", err)
	}
}
