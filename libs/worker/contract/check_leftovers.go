package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// checkBucket reports keys in the stage memory that belong to no operation, because the orchestrator never purges them.
func checkBucket(ctx context.Context, k *kit) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.Patience)
	defer cancel()
	keys, err := k.rig.stageKeys(ctx)
	if err != nil {
		k.bad("the stage memory cannot be read: %v", err)
		return
	}
	k.wire.look(func() {
		n := 0
		for _, key := range keys {
			operation, _, _ := strings.Cut(key, ".")
			if k.wire.orders[operation] != nil {
				continue
			}
			n++
			k.bad("it left the key %.100q in the stage memory, which is of no operation: nothing removes it", key)
		}
		k.figure = fmt.Sprintf("%d keys, %d of no operation", len(keys), n)
	})
}

const (
	// cleanupTries is the maximum number of tries of a cleanup, and cleanupPause the longest pause between them.
	cleanupTries = 5
	cleanupPause = 2 * time.Second
)

// checkCleanup sends the team's cleanup for each instance of earlier commands, with the details that were saved for it.
func checkCleanup(ctx context.Context, k *kit) {
	cases := k.cleanups()
	ids := k.touched()
	if len(cases) == 0 {
		k.skip("commands were sent for %d instances, and no case has cleanup: true: remove what the steps have made for them, "+
			"or write a case for the step that removes it (-o json lists the instances)", len(ids))
		return
	}
	for _, c := range cases {
		for _, id := range ids {
			k.clean(ctx, c, id)
			if k.gone() || ctx.Err() != nil || len(k.problems) >= cleanupTries {
				return
			}
		}
	}
	k.figure = fmt.Sprintf("%d instances", len(ids))
}

// touched returns the instances of the commands that the worker has taken, sorted.
func (k *kit) touched() []string {
	ids := map[string]bool{}
	k.wire.look(func() {
		for _, o := range k.wire.orders {
			if len(o.given) > 0 {
				ids[o.command.Operation.InstanceID] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(ids))
}

func (k *kit) cleanups() (cases []*Case) {
	for i := range k.cfg.Cases {
		if k.cfg.Cases[i].Cleanup {
			cases = append(cases, &k.cfg.Cases[i])
		}
	}
	return cases
}

// clean sends a cleanup for one instance, and repeats it while the answer is a retry.
func (k *kit) clean(ctx context.Context, c *Case, instance string) {
	what := fmt.Sprintf("%s, instance %s", c.Name, instance)
	for try := 1; ; try++ {
		o, err := k.orderOf(c, func(command *event.StepExecute) {
			command.Operation.InstanceID, command.StepAttempt = instance, try
		})
		if err == nil {
			o.command.Details, err = k.savedFor(instance, o.command.Details)
		}
		if err == nil {
			err = k.send(ctx, o)
		}
		if err != nil {
			k.bad("%s: %v", what, err)
			return
		}
		if !k.settled(ctx, o, what) {
			return
		}
		r := k.first(o)
		switch outcome := r.outcome(); {
		case done(outcome):
			return
		case outcome == event.OutcomeRetry && try < cleanupTries:
			if pause(ctx, min(cleanupPause, time.Duration(r.body.RetryAfter*float64(time.Second)))) != nil {
				return
			}
		default:
			k.bad("%s: it is %s (%s): what the steps have made for this instance stays", what, outcome, r.why())
			return
		}
	}
}

// savedFor returns the details that the worker has saved for an instance.
func (k *kit) savedFor(instance string, details json.RawMessage) (saved json.RawMessage, err error) {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(details, &all); err != nil {
		return nil, err
	}
	k.wire.look(func() {
		for _, r := range k.wire.results {
			var patch map[string]json.RawMessage
			if r.order == nil || r.order.command.Operation.InstanceID != instance || r.stored == 0 || json.Unmarshal(r.body.Details, &patch) != nil {
				continue
			}
			merged, problem := worker.MergeDetails(all[k.cfg.Worker], patch)
			if problem != nil {
				err = problem
				return
			}
			all[k.cfg.Worker] = merged
		}
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
