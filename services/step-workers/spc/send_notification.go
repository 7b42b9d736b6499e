package spc

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// sendNotification announces the maintenance of the instance to SPC. Scheduling the orchestration created the event.
// It repeats every failed call; the same state can be set again.
func (s *shared) sendNotification(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	state, err := announced(op)
	if err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	if state == stateUnderMaintenance {
		return op, 0, nil
	}
	t := tenant{InstanceID: op.InstanceID, StartDateTime: s.time(), EventState: stateUnderMaintenance}
	if err := s.spc.update(ctx, op.Upgrade.OrchestrationID, t); err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	log.Info("begin of maintenance announced", "orchestration_id", op.Upgrade.OrchestrationID)
	return op, 0, op.SaveDetails(Details{Operation: op.ID, State: stateUnderMaintenance})
}
