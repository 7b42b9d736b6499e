package lifecyclemanager

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// checkKymaResourceDeleted waits until the Lifecycle Manager has deleted the Kyma resource with its modules.
func (s *shared) checkKymaResourceDeleted(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	d, runtimeID, err := read(op)
	if err != nil {
		return op, 0, err
	}
	namespace := cmp.Or(d.Namespace, s.cfg.Namespace)
	names, err := s.find(ctx, kube.Kymas, namespace, op.InstanceID, cmp.Or(d.Resource, resourceName(runtimeID)))
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	if len(names) > 0 {
		return worker.Wait(op, s.cfg.PollInterval, "the Kyma resource is being deleted")
	}
	return op, 0, op.SaveDetails(map[string]any{"kymaNamespace": nil, "kymaName": nil})
}
