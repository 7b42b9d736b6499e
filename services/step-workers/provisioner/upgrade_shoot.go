package provisioner

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// upgradeShoot applies an update to the cluster, even if only the context of the instance changed; Check_Runtime waits for its end.
func (s *shared) upgradeShoot(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if d.RuntimeID == "" {
		return worker.Skip(op, noRuntime)
	}
	if d.Upgrade.For == op.ID && d.Upgrade.OperationID != "" {
		return op, 0, nil
	}
	input, err := s.upgradeInput(op)
	if err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	return s.upgrade(ctx, op, d, input, log)
}
