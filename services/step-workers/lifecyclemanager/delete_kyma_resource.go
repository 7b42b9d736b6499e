package lifecyclemanager

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// deleteKymaResource starts the deletion of the Kyma resource; Check_Kyma_Resource_Deleted waits for its end.
func (s *shared) deleteKymaResource(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	namespace, names, err := s.kymas(ctx, op)
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	if len(names) == 0 {
		return worker.Skip(op, "the instance has no Kyma resource")
	}
	for _, n := range names {
		if err := s.kube.Delete(ctx, kube.Kymas, namespace, n); err != nil {
			return op, s.cfg.RetryInterval, err
		}
		op.NoteRemoved("Kyma resource " + n)
	}
	log.Info("kyma resource deleted", "kyma_name", names[0])
	return op, 0, nil
}

// kymas returns the namespace and the names of the instance's Kyma resources.
func (s *shared) kymas(ctx context.Context, op worker.Operation) (namespace string, names []string, err error) {
	d, runtimeID, err := read(op)
	if err != nil {
		return "", nil, err
	}
	namespace = cmp.Or(d.Namespace, d.Home, s.cfg.Namespace)
	names, err = s.find(ctx, kube.Kymas, namespace, op.InstanceID, cmp.Or(d.Resource, resourceName(runtimeID)))
	return namespace, names, err
}
