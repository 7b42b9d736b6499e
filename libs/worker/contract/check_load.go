package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// slow returns the team's shortest case of a step that takes at least this time.
func (k *kit) slow(least time.Duration) (shortest *Case) {
	for i := range k.cfg.Cases {
		c := &k.cfg.Cases[i]
		if time.Duration(c.Takes) >= least && slices.Contains(k.steps, c.Step) && (shortest == nil || c.Takes < shortest.Takes) {
			shortest = c
		}
	}
	return shortest
}

func checkLongStep(ctx context.Context, k *kit) {
	c := k.slow(k.cfg.AckWait + 1)
	if c == nil {
		k.skip("no case takes longer than the ack wait: write one with takes: %s", k.cfg.AckWait+5*time.Second)
		return
	}
	o, err := k.orderOf(c)
	if err == nil {
		o.command.ExecuteBefore = o.command.ExecuteBefore.Add(2 * time.Duration(c.Takes))
		err = k.send(ctx, o)
	}
	if err != nil {
		k.bad("%s: %v", c.Name, err)
		return
	}
	if !k.settledWithin(ctx, 2*time.Duration(c.Takes)+k.cfg.Patience, o, c.Name) {
		return
	}
	k.wire.look(func() {
		if slices.ContainsFunc(o.given, k.neglected) {
			k.bad("%s: the command was delivered %d times, as nothing was heard for %s", c.Name, len(o.given), o.given[0].longest.Round(time.Millisecond))
		}
		var took time.Duration
		for _, d := range o.given {
			if d.settled == ack {
				took = max(took, d.when.Sub(o.given[0].at))
			}
		}
		if took < k.cfg.AckWait {
			k.bad("%s: takes says %s, and the step took %s: that says nothing about progress", c.Name, time.Duration(c.Takes), took.Round(time.Millisecond))
		}
		k.figure = fmt.Sprintf("%s, %d times progress, silent for %s at most", took.Round(time.Millisecond), o.given[0].told, o.given[0].longest.Round(time.Millisecond))
	})
}

func checkTimeLimit(ctx context.Context, k *kit) {
	const least = 3 * time.Second
	c := k.slow(least)
	if c == nil {
		k.skip("no case takes %s or longer", least)
		return
	}
	k.always(func() (problem string) { return k.outlasts(ctx, c) })
}

// always reports a problem only if each of three tries has one, because a busy machine may delay a worker once.
func (k *kit) always(try func() (problem string)) {
	const tries = 3
	for range tries {
		k.problems = nil
		problem := try()
		if problem == "" {
			return
		}
		k.problems = []string{problem}
		if k.gone() {
			return
		}
	}
}

// outlasts sends a command whose time ends before its step, and returns what the worker does wrong.
func (k *kit) outlasts(ctx context.Context, c *Case) (problem string) {
	takes := time.Duration(c.Takes)
	limit, grace := takes/3, min(takes/3, 5*time.Second)
	o, err := k.orderOf(c)
	if err == nil {
		o.quiet = true
		o.command.ExecuteBefore = time.Now().UTC().Add(limit)
		err = k.send(ctx, o)
	}
	if err != nil {
		return fmt.Sprintf("%s: %v", c.Name, err)
	}
	done := func() bool { return k.gone() || o.good() != nil && o.acknowledged() }
	k.wire.await(ctx, limit+grace, done)
	var extended time.Duration
	k.wire.look(func() { extended = time.Until(o.limit()) })
	if extended > 0 { // a step that has asked for more time ends by itself
		k.wire.await(ctx, min(extended, 2*takes)+grace, done)
	}
	var answered bool
	var at time.Time
	k.wire.look(func() {
		if r := o.good(); r != nil {
			answered, at = true, r.at
			k.figure = fmt.Sprintf("%s after %s", r.outcome(), r.at.Sub(o.given[0].at).Round(time.Millisecond))
		} else if len(o.given) == 0 {
			problem = fmt.Sprintf("%s: the worker did not take the command within %s", c.Name, limit+grace)
		}
	})
	// The step uses the wall clock, which continues when this process is paused.
	var limitAt time.Time
	k.wire.look(func() { limitAt = o.limit() })
	late := answered && at.After(limitAt.Add(grace))
	if answered && !late {
		return ""
	}
	// No answer is allowed, because the orchestrator sends the command again. An answer after that is not.
	if problem == "" && (late || k.wire.await(ctx, takes, func() bool { return k.gone() || len(o.outcomes) > 0 })) && !k.gone() {
		problem = fmt.Sprintf("%s: the step went on for more than %s after its executeBefore, and answered then", c.Name, grace)
	}
	var left []uint64
	k.wire.look(func() {
		for _, d := range o.given {
			left = append(left, d.seq)
		}
	})
	if err := k.rig.remove(ctx, left); err != nil {
		problem = err.Error()
	}
	return problem
}

func checkCancel(ctx context.Context, k *kit) {
	const least = 3 * time.Second
	c := k.slow(least)
	if c == nil {
		k.skip("no case takes %s or longer", least)
		return
	}
	k.always(func() (problem string) { return k.ignoresCancel(ctx, c) })
}

// ignoresCancel cancels a command while its step runs, and returns what the worker does wrong.
func (k *kit) ignoresCancel(ctx context.Context, c *Case) (problem string) {
	takes := time.Duration(c.Takes)
	o, err := k.orderOf(c)
	if err == nil {
		o.command.ExecuteBefore = o.command.ExecuteBefore.Add(2 * takes)
		err = k.send(ctx, o)
	}
	if err != nil {
		return fmt.Sprintf("%s: %v", c.Name, err)
	}
	if !k.wire.await(ctx, k.cfg.Patience, func() bool { return k.gone() || len(o.given) > 0 }) {
		return fmt.Sprintf("%s: the worker did not take the command within %s", c.Name, k.cfg.Patience)
	}
	// By then the step is running.
	k.wire.await(ctx, takes/4, func() bool { return k.gone() || o.answered() })
	if err := k.cancel(o); err != nil {
		return fmt.Sprintf("%s: %v", c.Name, err)
	}
	cancelled := time.Now()
	ended := k.wire.await(ctx, takes/2, func() bool { return k.gone() || o.good() != nil })
	if !ended {
		problem = fmt.Sprintf("%s: the step went on for %s after its command was cancelled", c.Name, takes/2)
	}
	k.wire.look(func() {
		if r := o.good(); r != nil && ended {
			k.figure = fmt.Sprintf("%s after %s", r.outcome(), r.at.Sub(cancelled).Round(time.Millisecond))
		}
	})
	k.wire.await(ctx, takes+k.cfg.Patience, func() bool { return k.gone() || o.good() != nil && o.acknowledged() })
	return problem
}

// cancel notifies the worker that a command should end early.
func (k *kit) cancel(o *order) error {
	return k.rig.bus.Notify(event.CancelSubject(k.cfg.Worker), event.CancelNotice{
		CommandRef: event.CommandRef{OperationID: o.command.Operation.ID, Cursor: o.command.Cursor}, Reason: "cancelled by the check",
	})
}

// lookTime is the time for counting the commands that a worker holds. A worker that takes too many takes them at once.
const lookTime = 5 * time.Second

// mostHeld is the maximum number of held commands per unit of concurrency: running and waiting ones.
const mostHeld = 4

func checkConcurrency(ctx context.Context, k *kit) {
	const least = 3 * time.Second
	c := k.slow(least)
	if c == nil {
		k.skip("no case takes %s or longer", least)
		return
	}
	most := mostHeld * k.cfg.Concurrency
	k.wire.look(func() { k.wire.mostHeld = k.wire.holds() })
	var orders []*order
	for range most + k.cfg.Concurrency {
		o, err := k.orderOf(c)
		if err == nil {
			o.quiet = true
			o.command.ExecuteBefore = o.command.ExecuteBefore.Add(10 * time.Duration(c.Takes))
			err = k.send(ctx, o)
		}
		if err != nil {
			k.bad("%s: %v", c.Name, err)
			return
		}
		orders = append(orders, o)
	}
	over := func() bool { return k.gone() || k.wire.mostHeld > most }
	k.wire.await(ctx, min(time.Duration(c.Takes), k.cfg.AckWait, lookTime), over)
	k.wire.look(func() {
		k.figure = fmt.Sprintf("held %d at most, runs %d at once", k.wire.mostHeld, k.cfg.Concurrency)
		if k.wire.mostHeld > most && !k.gone() {
			k.bad("the worker held %d commands at once, and runs %d: at most %d times as many are fine", k.wire.mostHeld, k.cfg.Concurrency, mostHeld)
		}
	})
	// The running commands end, early if the worker handles cancellation; the others may stay.
	err := k.rig.purge(ctx)
	for _, o := range orders {
		err = errors.Join(err, k.cancel(o))
	}
	if err != nil {
		k.bad("%v", err)
	}
	k.wire.await(ctx, k.cfg.Patience+2*time.Duration(c.Takes), func() bool { return k.gone() || len(k.wire.held) == 0 })
	k.twice(orders)
}

// neglected reports whether a message was redelivered because the worker was silent for too long. A worker that reports progress every
// third of the ack wait is not responsible if this process was paused.
func (k *kit) neglected(d *delivery) bool { return d.count > 1 && d.silent >= k.cfg.AckWait/2 }

// twice reports commands that were delivered again although the worker had not returned them, because they waited too long.
func (k *kit) twice(orders []*order) {
	n := 0
	k.wire.look(func() {
		for _, o := range orders {
			last := map[uint64]*delivery{}
			for _, d := range o.given {
				if before := last[d.seq]; before != nil && k.neglected(d) && (before.settled == "" || before.settle > d.tick) {
					n++
				}
				last[d.seq] = d
			}
		}
	})
	if n > 0 {
		k.bad("%d of %d commands were delivered again while the worker still had them", n, len(orders))
	}
}

func checkThroughput(ctx context.Context, k *kit) {
	began := time.Now()
	orders, err := k.sendMany(ctx, k.cfg.Commands, k.steps[0])
	if err != nil {
		k.bad("%v", err)
		return
	}
	next := 0 // earlier ones were answered; counting all of them at each message would distort the measurement
	k.wire.await(ctx, 4*k.cfg.Patience, func() bool {
		for next < len(orders) && orders[next].answered() {
			next++
		}
		return next == len(orders) || k.gone()
	})
	took := time.Since(began)
	n := 0
	k.wire.look(func() {
		for _, o := range orders {
			if o.good() != nil && slices.ContainsFunc(o.given, func(d *delivery) bool { return d.settled == ack && !d.lost }) {
				n++
			}
		}
	})
	if n < len(orders) {
		k.bad("%d of %d commands are answered and acknowledged after %s", n, len(orders), took.Round(time.Second))
	}
	k.twice(orders)
	k.figure = fmt.Sprintf("%d commands in %s, %.0f/s", n, took.Round(time.Millisecond), float64(n)/took.Seconds())
}
