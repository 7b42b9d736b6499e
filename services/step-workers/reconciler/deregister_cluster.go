package reconciler

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// deregisterCluster starts the deregistration of the runtime.
func (s *shared) deregisterCluster(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	switch {
	case !d.DeregisteredAt.IsZero():
		return op, 0, nil
	case d.RuntimeID == "":
		return worker.Skip(op, "the cluster was never registered with the reconciler")
	}
	gone, err := s.deregister(ctx, op, d)
	switch {
	case err != nil:
		return op, s.cfg.RetryInterval, err
	case gone:
		return worker.Skip(op, "the reconciler has no such cluster")
	}
	log.Info("cluster deregistration started", "runtime_id", d.RuntimeID)
	return op, 0, nil
}
