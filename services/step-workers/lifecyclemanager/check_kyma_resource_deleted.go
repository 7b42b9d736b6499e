package lifecyclemanager

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// checkKymaResourceDeleted waits until the Lifecycle Manager has deleted the Kyma resource with its modules.
func (s *shared) checkKymaResourceDeleted(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	_, names, err := s.kymas(ctx, op)
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	if len(names) > 0 {
		return worker.Wait(op, s.cfg.PollInterval, "the Kyma resource is being deleted")
	}
	return op, 0, op.SaveDetails(map[string]any{"kymaNamespace": nil, "kymaName": nil})
}
