package reconciler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// checkReconcilerState waits until the runtime has the configuration of an update.
func (s *shared) checkReconcilerState(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	return s.check(ctx, op, d, "the new credentials are being installed")
}
