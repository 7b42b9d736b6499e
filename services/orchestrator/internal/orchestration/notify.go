package orchestration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// notifyFor is how long an orchestration waits for SPC, before it begins and before it ends. Then it goes on without.
const notifyFor = 5 * time.Minute

// errNotAnnounced keeps an orchestration from beginning for a while.
var errNotAnnounced = errors.New("the maintenance cannot be announced now")

// announce lets the worker spc tell customers of the orchestration, before its members are saved and any of them can start: so no
// operation announces its begin before the event exists. A kill between the two, and each later look at the targets of a
// scheduled orchestration, announces it again, which SPC accepts.
func (c *Controller) announce(ctx context.Context, o *Orchestration, members []*Member, now time.Time) error {
	if !o.Parameters.Notification || o.Parameters.DryRun {
		return nil
	}
	q := event.NotifyRequest{OrchestrationID: o.ID, Type: o.Type}
	for _, m := range members {
		// The processes announce no upgrade of a cluster that is not ours.
		if m.State == Skipped || o.Type == event.UpgradeCluster && m.Plan.Name == "own_cluster" {
			continue
		}
		instance := event.NotifiedInstance{InstanceID: m.InstanceID, Begin: m.DueAt}
		if !m.WindowEnd.IsZero() {
			instance.Begin, instance.End = m.WindowBegin, optional(m.WindowEnd)
		}
		q.Instances = append(q.Instances, instance)
	}
	if len(q.Instances) == 0 {
		return nil
	}
	err := c.notify(ctx, q)
	switch start := o.Start(); {
	case err == nil:
		return nil
	// There will be another look at the targets before anything starts.
	case start.After(now):
		c.deps.Log.Warn("maintenance not announced", "orchestration_id", o.ID, "err", err)
		return nil
	case now.Before(start.Add(notifyFor)):
		return fmt.Errorf("%w, until %s: %w", errNotAnnounced, start.Add(notifyFor).UTC().Format(time.RFC3339), err)
	}
	c.deps.Log.Error("maintenance not announced, the orchestration begins without", "orchestration_id", o.ID, "err", err)
	return nil
}

// tellCancelled lets the worker spc tell customers that the orchestration was cancelled, once in each process, and before it ends.
func (c *Controller) tellCancelled(ctx context.Context, o *Orchestration, now time.Time) error {
	if _, told := c.told.Load(o.ID); told || !o.Parameters.Notification || o.Parameters.DryRun {
		return nil
	}
	if err := c.notify(ctx, event.NotifyRequest{OrchestrationID: o.ID, Type: o.Type, Cancelled: true}); err != nil {
		// It is being cancelled since UpdatedAt.
		if now.Before(o.UpdatedAt.Add(notifyFor)) {
			return fmt.Errorf("announce the cancellation: %w", err)
		}
		c.deps.Log.Error("cancellation not announced", "orchestration_id", o.ID, "err", err)
	}
	c.told.Store(o.ID, true)
	return nil
}

func (c *Controller) notify(ctx context.Context, q event.NotifyRequest) error {
	var answer event.NotifyAnswer
	if err := c.deps.Asker.Ask(ctx, event.AskNotify, q, &answer); err != nil {
		return err
	}
	c.deps.Log.Info("customers notified of an orchestration", "orchestration_id", q.OrchestrationID, "cancelled", q.Cancelled,
		"instances", len(q.Instances), "skipped", answer.Skipped)
	return nil
}
