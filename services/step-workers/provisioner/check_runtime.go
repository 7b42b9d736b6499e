package provisioner

import (
	"context"
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
		return worker.Fail(op, &worker.Error{Component: component, Message: "no runtime was ordered: Create_Runtime_Without_Kyma saved no operation id"})
	}
	status, err := s.runtimes.OperationStatus(ctx, op.Context.GlobalAccountID, d.OperationID, d.Kyma)
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	if status.Running() {
		return worker.Wait(op, s.cfg.PollInterval, "the runtime is being created")
	}
	if err := status.err(); err != nil {
		return op, 0, err
	}
	return op, 0, op.SaveDetails(Details{KubernetesVersion: s.cfg.KubernetesVersion})
}
