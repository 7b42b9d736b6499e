package contract

import (
	"context"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/stagemem"
)

// replicaLag is the time for which a replica of the stage memory lags, from the first read.
const replicaLag = 400 * time.Millisecond

// checkLaggingReplica lets a replica of the stage memory lag that answers the reads of the steps.
func checkLaggingReplica(ctx context.Context, k *kit) {
	before, names, ok := k.earlier(ctx)
	if !ok || !k.settledAll(ctx, before, names) {
		return
	}
	after, _, ok := k.earlier(ctx)
	if !ok {
		return
	}
	for _, o := range after {
		o.lags = true
	}
	if !k.settledAll(ctx, after, names) {
		return
	}
	stale := 0
	for i, o := range after {
		k.wire.look(func() { stale += o.stale })
		if got := k.first(o).outcome(); done(k.first(before[i]).outcome()) && (got == event.OutcomeFailed || got == event.OutcomeStageLost) {
			k.bad("%s: a replica lagged, which answered its reads of the stage memory, and the step is %s (%s)", names[i], got, k.first(o).why())
		}
	}
	k.figure = fmt.Sprintf("%d reads of a replica that lags", stale)
}

// earlier returns an order for each step, and for each case with a stage memory, whose stage memory an earlier step has used.
func (k *kit) earlier(ctx context.Context) (orders []*order, names []string, ok bool) {
	add := func(name string, o *order, err error) bool {
		if err == nil && !o.command.StageMemory {
			scope := stagemem.Scope{OperationID: o.command.Operation.ID, Stage: o.command.Stage, StageAttempt: o.command.StageAttempt}
			err = k.rig.memory.Put(ctx, scope, stagemem.ValueName("of-an-earlier-step"), []byte("a value"))
			o.command.StageMemory = true
		}
		if err != nil {
			k.bad("%s: %v", name, err)
			return false
		}
		orders, names = append(orders, o), append(names, name)
		return true
	}
	for _, step := range k.steps {
		o, err := k.order(step)
		if !add(step, o, err) {
			return nil, nil, false
		}
	}
	for i := range k.cfg.Cases {
		c := &k.cfg.Cases[i]
		if len(c.Remembered) == 0 || c.Takes > 0 || c.Cleanup {
			continue
		}
		o, err := k.orderOf(c)
		if !add(c.Name, o, err) {
			return nil, nil, false
		}
	}
	return orders, names, true
}

// settledAll sends orders and waits until each is answered. It reports what is missing.
func (k *kit) settledAll(ctx context.Context, orders []*order, names []string) bool {
	for i, o := range orders {
		if err := k.send(ctx, o); err != nil {
			k.bad("%s: %v", names[i], err)
			return false
		}
	}
	good := true
	for i, o := range orders {
		good = k.settled(ctx, o, names[i]) && good
	}
	return good
}

// bucketAway is the time without the bucket of the stage memory in which steps that use it may answer.
const bucketAway = 500 * time.Millisecond

// checkNoStageBucket starts the worker and sends commands while the bucket of the stage memory is missing, and then creates it again.
func checkNoStageBucket(ctx context.Context, k *kit) {
	js := k.rig.bus.JetStream()
	orders := make([]*order, len(k.steps)) // now, because the memory of a case needs the bucket
	for i, step := range k.steps {
		o, err := k.order(step)
		if err != nil {
			k.bad("%s: %v", step, err)
			return
		}
		orders[i] = o
	}
	if err := js.DeleteKeyValue(ctx, event.StageBucket); err != nil {
		k.bad("%v", err)
		return
	}
	away := true
	restore := func() {
		if away {
			away = false
			if err := k.rig.bus.EnsureStreams(ctx); err != nil {
				k.bad("%v", err)
			}
		}
	}
	defer restore()
	if k.instance != nil && !k.replace(ctx, "while the bucket of the stage memory is missing") {
		return
	}
	for i, o := range orders {
		if err := k.send(ctx, o); err != nil {
			k.bad("%s: %v", k.steps[i], err)
			return
		}
	}
	const what = "%s, without the bucket of the stage memory"
	var users []*order
	for i, o := range orders {
		if k.uses(k.base[k.steps[i]]) {
			users = append(users, o)
		} else if k.settled(ctx, o, fmt.Sprintf(what, k.steps[i])) {
			k.like(o, fmt.Sprintf(what, k.steps[i]))
		}
	}
	k.wire.await(ctx, min(bucketAway, k.cfg.Patience), func() bool { return k.gone() || allAnswered(users) })
	restore()
	for _, o := range users {
		if k.settled(ctx, o, fmt.Sprintf(what, o.command.Step)) {
			k.like(o, fmt.Sprintf(what, o.command.Step))
		}
	}
	k.figure = fmt.Sprintf("%d of %d steps use it", len(users), len(orders))
}

// checkNoStageKeys starts the worker without the keys of the stage memory, and sends commands.
func checkNoStageKeys(ctx context.Context, k *kit) {
	if k.instance == nil {
		k.skip(attached)
		return
	}
	k.rig.given = ""
	defer func() {
		k.rig.given = k.rig.key
		k.kill()
		if err := k.another(); err != nil {
			k.bad("it cannot be started again: %v", err)
		}
	}()
	if !k.replace(ctx, "without stage keys") {
		return
	}
	for _, step := range k.steps {
		o, ok := k.ask(ctx, step+", without stage keys", step)
		if !ok {
			continue
		}
		base, r := k.base[step], k.first(o)
		k.figure += fmt.Sprintf("%s%s: %s", comma(k.figure), step, r.outcome())
		switch {
		case !k.uses(base):
			k.like(o, step+", without stage keys")
		case k.first(base).body.StageMemory && done(r.outcome()) && !r.body.StageMemory:
			k.bad("%s: with stage keys it writes into the stage memory; without them it writes nothing, and is %s: later steps miss the values", step, r.outcome())
		}
	}
}

// uses reports whether the worker has used the stage memory of an order.
func (k *kit) uses(o *order) (yes bool) {
	if o != nil {
		k.wire.look(func() { yes = o.remembers })
	}
	return yes
}

// replace kills the worker, and starts another instance, which must register.
func (k *kit) replace(ctx context.Context, how string) bool {
	k.kill()
	if err := k.another(); err != nil {
		k.bad("%s it cannot be started: %v", how, err)
		return false
	}
	switch {
	case k.registered(ctx, k.cfg.Patience) != nil:
		return true
	case k.gone():
		k.bad("%s it ends; the last that it printed:\n%s", how, k.output.last(8))
	default:
		k.bad("%s it does not register within %s; the last that it printed:\n%s", how, k.cfg.Patience, k.output.last(8))
	}
	return false
}
