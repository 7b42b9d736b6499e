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
	return s.announce(ctx, op, log, tenant{InstanceID: op.InstanceID, StartDateTime: s.time(), EventState: stateUnderMaintenance})
}
