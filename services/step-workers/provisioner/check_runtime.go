package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// checkRuntime waits for the end of the runtime's creation or of its cluster's upgrade.
func (s *shared) checkRuntime(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if op.Type != event.Provision {
		return s.checkUpgrade(ctx, op, d, log)
	}
	if d.OperationID == "" {
		order := "Create_Runtime_Without_Kyma"
		if d.Kyma {
			order = "Create_Runtime"
		}
		return worker.Fail(op, &worker.Error{
			Component: component, Message: "no runtime is being created: " + order + " saved no operation id, or the creation failed; retry from that step",
		})
	}
	status, err := s.runtimes.OperationStatus(ctx, op.Context.GlobalAccountID, d.OperationID, d.Kyma)
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	if status.Running() {
		return worker.Wait(op, s.cfg.PollInterval, "the runtime is being created")
	}
	if err := status.err(); err != nil {
		if status.State == StateFailed {
			// A retry of the operation must replace this runtime.
			err = errors.Join(op.SaveDetails(map[string]any{"operationId": nil}), err)
		}
		return op, 0, err
	}
	return op, 0, op.SaveDetails(Details{KubernetesVersion: s.cfg.KubernetesVersion})
}
