package spc

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// sendFinishedNotification announces the end of the instance's maintenance to SPC, after a success or a failure.
type sendFinishedNotification struct{ *shared }

// Name implements worker.Step.
func (sendFinishedNotification) Name() string { return "Send_Finished_Notification" }

// Describe implements worker.Described.
func (sendFinishedNotification) Describe() worker.Description {
	return worker.Description{
		Summary: "Notifies the customer through SPC of the end of the instance's maintenance.",
		Calls:   []worker.Call{{System: component, Operation: "PATCH " + updateRoute}},
		Details: []string{"operation", "state"},
	}
}

// Run implements worker.Step. It announces the end also without a saved begin, because the execution that announced the begin may
// have been killed.
func (s sendFinishedNotification) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	state, err := announced(op)
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
