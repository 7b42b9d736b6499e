package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// fewCommands is the number of commands after an outage.
const fewCommands = 5

func checkReconnect(ctx context.Context, k *kit) {
	step := k.steps[0]
	k.door.cut()
	cut, err := k.sendMany(ctx, fewCommands, step)
	k.door.restore()
	if err != nil {
		k.bad("%v", err)
		return
	}
	if !k.allSettledSoon(ctx, k.cfg.AckWait+k.cfg.Patience, cut, "after the connection was cut") {
		return
	}
	down, err := k.sendMany(ctx, fewCommands, step)
	if err == nil {
		k.door.cut()
		err = k.rig.restart(ctx)
	}
	k.door.restore() // the worst case: first the workers, then the orchestrator
	if err == nil {
		err = k.rig.furnish(ctx)
	}
	if err != nil {
		k.bad("%v", err)
		return
	}
	up, err := k.sendMany(ctx, fewCommands, step)
	if err != nil {
		k.bad("%v", err)
		return
	}
	k.wire.forget()
	if !k.allSettledSoon(ctx, k.cfg.AckWait+k.cfg.Patience, append(down, up...), "after a restart of NATS") {
		return
	}
	if k.registered(ctx, k.cfg.Patience) == nil && !k.gone() {
		k.bad("after a restart of NATS the worker is not registered any more")
	}
}

func checkConsumer(ctx context.Context, k *kit) {
	if err := k.rig.recreate(ctx); err != nil {
		k.bad("%v", err)
		return
	}
	began := time.Now()
	if k.askMany(ctx, fewCommands, "after its consumer was made again", k.steps[0]) {
		k.figure = fmt.Sprintf("after %s", time.Since(began).Round(time.Millisecond))
	}
}

// beginTime is the time for a slow step to begin.
const beginTime = time.Second

// burst sends commands, slow ones if the team has a case for them, and waits until the worker is in the middle of them. More slow commands
// then wait for a slot, in the worker or in the stream.
func (k *kit) burst(ctx context.Context) (orders []*order, slow, ok bool) {
	c := k.slow(time.Second)
	n := 50
	slow = c != nil && time.Duration(c.Takes) < k.cfg.Drain-time.Second
	if slow {
		n = k.cfg.Concurrency
	}
	send := func() bool {
		for range n {
			var o *order
			var err error
			if slow {
				o, err = k.orderOf(c)
			} else {
				o, err = k.order(k.steps[0])
			}
			if err == nil {
				err = k.send(ctx, o)
			}
			if err != nil {
				k.bad("%v", err)
				return false
			}
			orders = append(orders, o)
		}
		return true
	}
	if !send() {
		return nil, false, false
	}
	began := k.wire.await(ctx, k.cfg.Patience, func() bool {
		return k.gone() || slices.ContainsFunc(orders, func(o *order) bool { return len(o.outcomes) > 0 || slow && len(o.given) > 0 })
	})
	if !began {
		k.bad("the worker did not begin within %s", k.cfg.Patience)
		return orders, slow, false
	}
	if slow {
		k.wire.await(ctx, min(time.Duration(c.Takes)/4, beginTime), k.gone)
		return orders, slow, send()
	}
	return orders, slow, true
}

// holds returns the number of unsettled commands of the worker.
func (k *kit) holds() (n int) {
	k.wire.look(func() { n = k.wire.holds() })
	return n
}

const attached = "the worker runs externally: let the check start it to run this check"

func checkStop(ctx context.Context, k *kit) {
	if k.instance == nil {
		k.skip(attached)
		return
	}
	orders, slow, ok := k.burst(ctx)
	if !ok {
		return
	}
	began, held := time.Now(), k.holds()
	if err := k.instance.Stop(); err != nil {
		k.bad("%v", err)
		return
	}
	limit := k.cfg.Drain + 10*time.Second
	switch ended := k.pulse.wait(ctx, limit, k.instance.Done()); {
	case ended:
		took := time.Since(began)
		if err := k.instance.Err(); err != nil {
			k.bad("it ended with %v: want exit code 0; the last that it printed:\n%s", err, k.output.last(8))
		}
		k.figure = fmt.Sprintf("ended after %s, held %d commands when it was stopped", took.Round(time.Millisecond), held)
	case ctx.Err() != nil:
		return
	default:
		k.bad("it has not ended %s after SIGTERM, with a drain time of %s", limit, k.cfg.Drain)
		k.kill()
	}
	// Its last messages may arrive until all of its connections are closed.
	for end := k.pulse.now() + k.cfg.Patience; k.holds() > 0 && !k.door.idle() && k.pulse.now() < end; {
		if pause(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
	if n := k.holds(); n > 0 {
		k.bad("it kept %d commands that it neither answered nor gave back: they stand still for the ack wait, %s", n, k.cfg.AckWait)
	}
	if k.registered(ctx, answerPatience) != nil {
		k.bad("it has ended, and something still answers as %s%s", worker.ServicePrefix, k.cfg.Worker)
	}
	k.next(ctx, orders, slow, "after it was stopped and started again")
}

func checkKill(ctx context.Context, k *kit) {
	if k.instance == nil {
		k.skip(attached)
		return
	}
	orders, slow, ok := k.burst(ctx)
	if !ok {
		return
	}
	k.kill()
	k.figure = fmt.Sprintf("held %d commands when it was killed", k.holds())
	k.next(ctx, orders, slow, "after it was killed and started again")
}

// next starts another instance, which must execute the remaining commands of the previous one. It cancels slow ones when they run: that the
// next instance answers them is what matters, and not how long they take.
func (k *kit) next(ctx context.Context, orders []*order, slow bool, what string) {
	if err := k.another(); err != nil {
		k.bad("it cannot be started again: %v", err)
		return
	}
	var cancelled []*order
	if slow {
		cancelled = orders
	}
	k.allSettledSoon(ctx, k.cfg.AckWait+2*k.cfg.Patience, orders, what, cancelled...)
}

const (
	// pullLimit is how long the check waits until the bus delivers a command to a frozen worker. Without an open pull it delivers nothing.
	pullLimit = 2 * time.Second
	// frozenFor is a second longer than a freeze after which a worker must ask.
	frozenFor = 4 * time.Second
	// freezes is the number of attempts: on a busy machine a process stops some time after the signal, and may execute the command before.
	freezes = 3
)

func checkFrozen(ctx context.Context, k *kit) {
	p, ok := k.instance.(*process)
	if !ok {
		k.skip("the worker is no process that the check has started")
		return
	}
	var executed event.Outcome
	for range freezes {
		o, given, err := k.frozen(ctx, p)
		if err != nil {
			k.bad("%v", err)
			return
		}
		answered := false
		k.wire.look(func() {
			if answered = len(o.outcomes) > 0; given && answered {
				executed = o.outcomes[0].outcome()
			}
		})
		if given && !answered || k.gone() || len(k.problems) > 0 {
			return
		}
	}
	if executed == "" {
		k.skip("the worker had no open pull when it was frozen")
		return
	}
	k.bad("%s: it was frozen for longer than the ack wait, executed the command that another replica has executed meanwhile, and answered with %q",
		k.steps[0], executed)
}

// frozen freezes the worker, sends a command to it, ends the operation of the command as if another replica had executed it after the ack
// wait, and waits until the worker has continued and acknowledged the command. given reports whether the bus delivered the command during the
// freeze.
func (k *kit) frozen(ctx context.Context, p *process) (o *order, given bool, err error) {
	if o, err = k.order(k.steps[0]); err != nil {
		return nil, false, err
	}
	if err := p.freeze(); err != nil {
		return nil, false, err
	}
	o.quiet = true
	err = k.send(ctx, o)
	if err == nil {
		given = k.wire.await(ctx, pullLimit, func() bool { return len(o.given) > 0 })
		k.rig.states.end(event.CommandRef{OperationID: o.command.Operation.ID, Cursor: o.command.Cursor})
		k.wire.await(ctx, max(k.cfg.AckWait, frozenFor), k.gone)
	}
	// It must continue in any case, or it could not be stopped.
	if err := errors.Join(err, p.thaw()); err != nil {
		return nil, false, err
	}
	if !k.hurry(ctx, k.cfg.Patience, func() bool { return k.gone() || o.acknowledged() }) {
		k.bad("%s: a command that another replica has executed meanwhile is not acknowledged within %s", k.steps[0], k.cfg.Patience)
	}
	return o, given, nil
}
