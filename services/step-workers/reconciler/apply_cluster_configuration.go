package reconciler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// applyClusterConfiguration sends the target version of Kyma to the Reconciler.
func (s *shared) applyClusterConfiguration(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	return s.configure(ctx, op, log)
}
