package spc

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// sendNotification tells SPC that the instance is under maintenance. The operations of an orchestration share one event:
// the first one makes it.
type sendNotification struct{ *shared }

// Name implements worker.Step.
func (sendNotification) Name() string { return "Send_Notification" }

// Describe implements worker.Described.
func (sendNotification) Describe() worker.Description {
	return worker.Description{
		Summary: "Tells the customer through SPC that the maintenance of the instance begins.",
		Calls: []worker.Call{
			{System: component, Operation: "PATCH " + updateRoute}, {System: component, Operation: "POST " + createRoute},
		},
		Details: []string{"operation", "state"},
	}
}

// Run implements worker.Step. Every failed call is repeated; setting a state again changes nothing. When two operations
// make the event at once, one is refused, and finds the event in its next attempt.
func (s sendNotification) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	state, err := told(op)
	if err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	if state == stateUnderMaintenance {
		return op, 0, nil
	}
	m := newMaintenance(op, stateUnderMaintenance)
	known, err := s.spc.update(ctx, m)
	if err == nil && !known {
		err = s.spc.create(ctx, m)
	}
	if err != nil {
		return outcome.Again(op, component, s.cfg.RetryInterval, err)
	}
	log.Info("maintenance announced", "orchestration_id", m.OrchestrationID)
	return op, 0, op.SaveDetails(Details{Operation: op.ID, State: stateUnderMaintenance})
}
