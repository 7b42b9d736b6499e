package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// checkRuntimeRemoval waits until the runtime is removed. It restarts a failed removal, because a repeated deprovisioning does not repeat
// Remove_Runtime if that step succeeded before.
func (s *shared) checkRuntimeRemoval(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Plan.Name == PlanOwnCluster {
		return worker.Skip(op, "the cluster belongs to the customer")
	}
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if d.RemovalOperationID == "" {
		return s.start(ctx, op, d, log)
	}
	status, err := s.runtimes.OperationStatus(ctx, op.Context.GlobalAccountID, d.RemovalOperationID, d.Kyma)
	if extclient.IsNotFound(err) {
		return s.start(ctx, op, d, log)
	}
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	switch {
	case status.State == StateSucceeded:
		return op, 0, forget(op)
	case status.Running():
		return worker.Wait(op, s.cfg.RemovalPollInterval, "the runtime is being removed")
	case status.State == StateFailed:
		// The next deprovisioning must not check this operation again.
		err = op.SaveDetails(map[string]any{"removalOperationId": nil})
	}
	return op, 0, errors.Join(err, status.err())
}

func (s *shared) start(ctx context.Context, op worker.Operation, d Details, log *slog.Logger) (worker.Operation, time.Duration, error) {
	r, err := s.remove(ctx, op, &d)
	switch {
	case err != nil: // every error, also a permanent one: a failed deprovisioning would leave the cluster
		return worker.Retry(op, s.cfg.RetryInterval, err)
	case r.gone:
		return op, 0, forget(op)
	case r.waiting:
		return worker.Wait(op, s.cfg.RemovalPollInterval, otherFirst)
	}
	log.Info("runtime removal started again", "runtime_id", d.RuntimeID)
	if err := op.SaveDetails(Details{RuntimeID: d.RuntimeID, RemovalOperationID: r.operationID, Kyma: d.Kyma}); err != nil {
		return op, 0, err
	}
	return worker.Wait(op, s.cfg.RemovalPollInterval, "the runtime is being removed")
}
