package provisioner

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// upgradeCluster starts the upgrade of Kubernetes and of the machine image; Check_Runtime waits for its end.
func (s *shared) upgradeCluster(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if d.RuntimeID == "" {
		return worker.Skip(op, noRuntime)
	}
	input, err := s.upgradeInput(op)
	if err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	if op.Upgrade != nil && op.Upgrade.DryRun {
		text, err := json.Marshal(input)
		if err != nil {
			return worker.Fail(op, &worker.Error{Err: err})
		}
		return worker.Skip(op, "dry run: upgradeShoot would get "+string(text))
	}
	if d.Upgrade.For == op.ID && d.Upgrade.OperationID != "" {
		return op, 0, nil
	}
	return s.upgrade(ctx, op, d, input, log)
}
