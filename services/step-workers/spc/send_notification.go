package spc

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// sendNotification announces the maintenance of the instance to SPC. Scheduling the orchestration created the event.
type sendNotification struct{ *shared }

// Name implements worker.Step.
func (sendNotification) Name() string { return "Send_Notification" }

// Describe implements worker.Described.
func (sendNotification) Describe() worker.Description {
	return worker.Description{
		Summary: "Notifies the customer through SPC of the begin of the instance's maintenance.",
		Calls:   []worker.Call{{System: component, Operation: "PATCH " + updateRoute}},
		Details: []string{"operation", "state"},
	}
}

// Run implements worker.Step. It repeats every failed call; the same state can be set again.
func (s sendNotification) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	state, err := announced(op)
	if err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	if state == stateUnderMaintenance {
		return op, 0, nil
	}
	t := tenant{InstanceID: op.InstanceID, StartDateTime: s.time(), EventState: stateUnderMaintenance}
	if err := s.spc.update(ctx, op.Upgrade.OrchestrationID, t); err != nil {
		return outcome.Again(op, component, s.cfg.RetryInterval, err)
	}
	log.Info("begin of maintenance announced", "orchestration_id", op.Upgrade.OrchestrationID)
	return op, 0, op.SaveDetails(Details{Operation: op.ID, State: stateUnderMaintenance})
}
