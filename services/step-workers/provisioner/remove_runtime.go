package provisioner

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// removeRuntime starts the removal of the runtime.
func (s *shared) removeRuntime(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Plan.Name == PlanOwnCluster {
		return worker.Skip(op, "the cluster belongs to the customer")
	}
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if d.RemovalOperationID != "" {
		return op, 0, nil
	}
	// From now on, an unsuspension must not use this runtime, even if the removal fails.
	if err := op.SaveDetails(map[string]any{"operationId": nil}); err != nil {
		return op, 0, err
	}
	r, err := s.remove(ctx, op, &d)
	switch {
	case err != nil: // every error, also a permanent one: a failed deprovisioning would leave the cluster
		return worker.Retry(op, s.cfg.RetryInterval, err)
	case r.gone:
		if err := forget(op); err != nil {
			return op, 0, err
		}
		return worker.Skip(op, "there is no runtime to remove")
	case r.waiting:
		return worker.Wait(op, s.cfg.RemovalPollInterval, otherFirst)
	}
	log.Info("runtime removal started", "runtime_id", d.RuntimeID)
	return op, 0, op.SaveDetails(Details{RuntimeID: d.RuntimeID, RemovalOperationID: r.operationID, Kyma: d.Kyma})
}
