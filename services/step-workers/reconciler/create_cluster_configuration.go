package reconciler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// createClusterConfiguration sends the configuration of the new runtime to the Reconciler.
func (s *shared) createClusterConfiguration(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	return s.configure(ctx, op, log)
}
