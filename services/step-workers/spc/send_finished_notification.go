package spc

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// sendFinishedNotification tells SPC that the maintenance of the instance has ended, however it has ended.
type sendFinishedNotification struct{ *shared }

// Name implements worker.Step.
func (sendFinishedNotification) Name() string { return "Send_Finished_Notification" }

// Describe implements worker.Described.
func (sendFinishedNotification) Describe() worker.Description {
	return worker.Description{
		Summary: "Tells the customer through SPC that the maintenance of the instance has ended.",
		Calls:   []worker.Call{{System: component, Operation: "PATCH " + updateRoute}},
		Details: []string{"operation", "state"},
	}
}

// Run implements worker.Step. It also tells when nothing is saved about the beginning, as the execution that told of it
// may have been killed.
func (s sendFinishedNotification) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	state, err := told(op)
	if err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	if state == stateFinished {
		return op, 0, nil
	}
	t := tenant{InstanceID: op.InstanceID, EndDateTime: s.time(), EventState: stateFinished}
	if err := s.spc.update(ctx, op.Upgrade.OrchestrationID, t); err != nil {
		return outcome.Again(op, component, s.cfg.RetryInterval, err)
	}
	log.Info("end of maintenance announced", "orchestration_id", op.Upgrade.OrchestrationID)
	return op, 0, op.SaveDetails(Details{Operation: op.ID, State: stateFinished})
}
