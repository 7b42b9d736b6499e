package spc

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// sendFinishedNotification announces the end of the instance's maintenance to SPC, after a success or a failure.
// It announces the end also without a saved begin, because the execution that announced the begin may
// have been killed.
func (s *shared) sendFinishedNotification(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	state, err := announced(op)
	if err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	if state == stateFinished {
		return op, 0, nil
	}
	t := tenant{InstanceID: op.InstanceID, EndDateTime: s.time(), EventState: stateFinished}
	if err := s.spc.update(ctx, op.Upgrade.OrchestrationID, t); err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	log.Info("end of maintenance announced", "orchestration_id", op.Upgrade.OrchestrationID)
	return op, 0, op.SaveDetails(Details{Operation: op.ID, State: stateFinished})
}
