package contract

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
)

func checkRepeated(ctx context.Context, k *kit) {
	for _, step := range k.steps {
		o, ok := k.ask(ctx, step, step)
		if !ok {
			continue
		}
		// Repeat the message, as after a restart of a bus that has lost the acknowledgement.
		if err := k.send(ctx, o); err != nil {
			k.bad("%v", err)
			return
		}
		if !k.settled(ctx, o, step+", the same command a second time") {
			continue
		}
		if err := k.again(ctx, o, step); err != nil {
			k.bad("%v", err)
			return
		}
	}
	// Send both at once: one answer may be for both.
	o, err := k.order(k.steps[0])
	if err != nil {
		k.bad("%v", err)
		return
	}
	one, err := k.message(o, nil)
	if err != nil {
		k.bad("%v", err)
		return
	}
	o.command.Dispatch = 2
	two, err := k.message(o, nil)
	if err != nil {
		k.bad("%v", err)
		return
	}
	o.quiet = true
	if err := k.publish(ctx, o, one, two); err != nil {
		k.bad("%v", err)
		return
	}
	if k.settled(ctx, o, "two dispatches at once") {
		k.constant(o, "two dispatches at once")
	}
}

// again sends a command with a higher dispatch, as the orchestrator does without an answer, and reports a missing answer to it. A slow
// worker may still be busy with the previous dispatch for a moment after it has acknowledged it, and then needs no other answer, so it
// gets another try.
func (k *kit) again(ctx context.Context, o *order, step string) error {
	const last = 4
	for n := 2; n <= last; n++ {
		o.command.Dispatch = n
		if err := k.send(ctx, o); err != nil {
			return err
		}
		if !k.settled(ctx, o, fmt.Sprintf("%s, with dispatch %d", step, n)) {
			return nil
		}
		id := event.DispatchID(o.command.Operation.ID, o.command.Cursor, n)
		answered := func() bool {
			return k.gone() || slices.ContainsFunc(o.outcomes, func(r *result) bool {
				return r.header.Get(nats.MsgIdHdr) == id || header(r.header, "ce-id") == id
			})
		}
		patience := time.Duration(0) // the answer comes before the acknowledgement
		if n == last {
			patience = k.cfg.Patience
		}
		if k.wire.await(ctx, patience, answered) {
			k.constant(o, step)
			return nil
		}
	}
	k.bad("%s: dispatches 2 to %d came after the first answer, and got none of their own", step, last)
	return nil
}

// constant reports different answers to the executions of one command. A retry is not counted as different, because external systems may
// change.
func (k *kit) constant(o *order, what string) {
	k.wire.look(func() {
		seen := map[string]bool{}
		var was, now event.Outcome
		for _, r := range o.outcomes {
			id := r.header.Get(nats.MsgIdHdr)
			if r.stored == 0 || r.outcome() == event.OutcomeRetry || seen[id] {
				continue // like the orchestrator, use the first result of an id
			}
			seen[id] = true
			was, now = cmp.Or(was, r.outcome()), r.outcome()
			if done(was) != done(now) {
				k.bad("%s: it is %s first, then %s (%s)", what, was, now, r.why())
				return
			}
		}
	})
}

func checkRedelivery(ctx context.Context, k *kit) {
	lose := func(yes bool) { k.wire.look(func() { k.wire.loseAcks = yes }) }
	lose(true)
	defer lose(false)
	step := k.steps[0]
	o, err := k.order(step)
	if err == nil {
		err = k.send(ctx, o)
	}
	if err != nil {
		k.bad("%v", err)
		return
	}
	if !k.wire.await(ctx, k.cfg.Patience, func() bool { return k.gone() || o.good() != nil && len(o.given) > 0 && o.given[0].settled != "" }) {
		k.bad("%s: the worker did not answer and acknowledge the command within %s", step, k.cfg.Patience)
		return
	}
	lose(false)
	if k.settledSoon(ctx, k.cfg.AckWait+k.cfg.Patience, o, step+", the acknowledgement was lost") {
		k.constant(o, step)
	}
}

func checkOutdated(ctx context.Context, k *kit) {
	step := k.steps[0]
	k.door.cut()
	defer k.door.restore()
	limited, cancel := context.WithTimeout(ctx, k.cfg.Patience)
	defer cancel()
	err := k.rig.forgetPulls(limited)
	var orders []*order
	if err == nil {
		orders, err = k.sendMany(limited, 2, step)
	}
	if err != nil {
		k.bad("%v", err)
		return
	}
	current, outdated := orders[0], orders[1]
	outdated.quiet = true
	k.rig.states.end(event.CommandRef{OperationID: outdated.command.Operation.ID, Cursor: outdated.command.Cursor})
	if err := k.rig.takeFirst(limited, len(orders)); err != nil {
		k.bad("%v", err)
		return
	}
	k.rig.states.refusals()
	// First without answers to questions.
	k.rig.mute()
	k.wire.forget()
	k.door.restore()
	given := func() bool { return k.gone() || len(current.given) > 0 && len(outdated.given) > 0 }
	if !k.wire.await(ctx, min(hurryEvery, k.cfg.Patience), given) && !k.hurry(ctx, k.cfg.Patience, given) {
		k.bad("%s: the worker did not take redelivered commands within %s", step, k.cfg.Patience)
	}
	guessed := false
	k.wire.await(ctx, k.cfg.Patience, func() bool {
		guessed = current.taken() || outdated.taken()
		return k.gone() || guessed || current.left() && outdated.left()
	})
	if k.rig.mute, err = k.rig.answerCurrent(); err != nil {
		k.bad("%v", err)
		return
	}
	if guessed {
		outdated.quiet, current.quiet = true, true // reported once
		k.bad("%s: without an answer whether a redelivered command is current, the worker executed or acknowledged it", step)
		return
	}
	if k.settledSoon(ctx, k.cfg.Patience, current, step+", delivered before and still waited for") &&
		!k.hurry(ctx, k.cfg.Patience, func() bool { return k.gone() || outdated.acknowledged() }) {
		k.bad("%s: a redelivered command that is not current is not acknowledged within %s: it is redelivered endlessly", step, k.cfg.Patience)
	}
	k.wire.look(func() {
		if len(outdated.outcomes) > 0 {
			k.bad("%s: a redelivered command that is not current was executed, and answered with %q", step, outdated.outcomes[0].outcome())
		}
	})
	for _, refused := range k.rig.states.refusals() {
		k.bad("its question on %s is refused: %s", event.AskCurrentAs(k.cfg.Worker), refused)
	}
}

// refusedWait is the time limit for a worker to handle a rejected result.
const refusedWait = time.Second

func checkResultFirst(ctx context.Context, k *kit) {
	if k.unanswered(); len(k.problems) > 0 {
		k.problems = nil
		k.skip("it acknowledges before its result is in the stream: see acknowledged-last")
		return
	}
	restore, err := k.rig.refuseResults(ctx)
	if err != nil {
		k.bad("%v", err)
		return
	}
	step := k.steps[0]
	o, err := k.order(step)
	if err == nil {
		err = k.send(ctx, o)
	}
	if err != nil {
		k.bad("%v", err)
	} else {
		tried := k.wire.await(ctx, k.cfg.Patience, func() bool { return k.gone() || len(o.outcomes) > 0 })
		if !tried {
			k.bad("%s: the worker did not answer within %s", step, k.cfg.Patience)
		}
		// Without acknowledging, a worker can return the command, answer again, or wait for its redelivery.
		settled := func() bool { return k.gone() || o.early() || o.left() || len(o.outcomes) > 1 }
		if !k.wire.await(ctx, min(refusedWait, k.cfg.Patience), settled) {
			k.hurry(ctx, k.cfg.Patience, settled)
		}
	}
	if err := restore(); err != nil {
		k.bad("%v", err)
		return
	}
	if len(k.problems) > 0 {
		return
	}
	early := func() (yes bool) {
		if k.wire.look(func() { yes = o.early() }); yes {
			k.bad("%s: the stream refused the result, as it does with a full disk, and the worker acknowledged the command all the same: the step would be lost until its time is over", step)
			o.quiet = true // reported once
		}
		return yes
	}
	if early() {
		return
	}
	// This also delivers commands that the worker has returned with a delay.
	if k.settledSoon(ctx, 2*k.cfg.AckWait+k.cfg.Patience, o, step+", when the stream takes results again") {
		early() // the worker may have been slow
	}
}
