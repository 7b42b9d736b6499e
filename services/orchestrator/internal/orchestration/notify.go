package orchestration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// notifyFor is how long an orchestration waits for SPC before it starts, from its first failed announcement, and before it ends. It then continues
// without.
const notifyFor = 5 * time.Minute

// errNotAnnounced delays the start of an orchestration.
var errNotAnnounced = errors.New("the maintenance is not announced")

// announce asks the worker spc to notify customers of the orchestration. This happens before its members are saved and can start, so that
// no operation announces its start before the event exists. A crash between the two, and each later look-up of the targets, announces it
// again, which SPC accepts.
func (c *Controller) announce(ctx context.Context, o *Orchestration, members []*Member, now time.Time) error {
	if !o.Parameters.Notification || o.Parameters.DryRun {
		return nil
	}
	q := event.NotifyRequest{OrchestrationID: o.ID, Type: o.Type}
	for _, m := range members {
		// The processes announce no upgrade of an own cluster.
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
	if err == nil {
		return nil
	}
	if o.Start().After(now) { // the targets are looked up again before anything starts
		c.deps.Log.Warn("maintenance not announced", "orchestration_id", o.ID, "err", err)
		return nil
	}
	since, storeErr := c.deps.Store.NotificationFailed(ctx, o.ID, now)
	if storeErr != nil {
		return storeErr
	}
	if until := since.Add(notifyFor); now.Before(until) {
		return fmt.Errorf("%w; the orchestration starts without an announcement at %s: %w", errNotAnnounced, until.UTC().Format(time.RFC3339), err)
	}
	c.deps.Log.Error("maintenance not announced; the orchestration starts without", "orchestration_id", o.ID, "err", err)
	return nil
}

// notifyCancelled asks the worker spc to notify customers of the cancellation, before the orchestration ends. A crash right after the notice
// repeats it, which SPC accepts.
func (c *Controller) notifyCancelled(ctx context.Context, o *Orchestration, now time.Time) error {
	if o.CancelNotified || !o.Parameters.Notification || o.Parameters.DryRun {
		return nil
	}
	if err := c.notify(ctx, event.NotifyRequest{OrchestrationID: o.ID, Type: o.Type, Cancelled: true}); err != nil {
		// UpdatedAt is when the cancellation began.
		if now.Before(o.UpdatedAt.Add(notifyFor)) {
			return fmt.Errorf("announce the cancellation: %w", err)
		}
		c.deps.Log.Error("cancellation not announced", "orchestration_id", o.ID, "err", err)
	}
	return c.deps.Store.CancelNotified(ctx, o.ID)
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
