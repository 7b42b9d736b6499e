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
	return s.announce(ctx, op, log, tenant{InstanceID: op.InstanceID, EndDateTime: s.time(), EventState: stateFinished})
}
