package lifecyclemanager

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// deleteKubeconfig deletes the Secret with the kubeconfig. It runs after the removal of the runtime, when the Lifecycle Manager no
// longer needs the Secret.
func (s *shared) deleteKubeconfig(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, _, err := read(op)
	if err != nil {
		return op, 0, err
	}
	namespace := cmp.Or(d.SecretNamespace, d.Home, s.cfg.Namespace)
	names, err := s.find(ctx, kube.Secrets, namespace, op.InstanceID, d.Secret)
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	for _, n := range names {
		if err := s.kube.Delete(ctx, kube.Secrets, namespace, n); err != nil {
			return op, s.cfg.RetryInterval, err
		}
		op.NoteRemoved("Secret " + n)
	}
	if err := op.SaveDetails(map[string]any{"secretNamespace": nil, "secretName": nil, "kymaTemplate": nil}); err != nil {
		return op, 0, err
	}
	if len(names) == 0 {
		return worker.Skip(op, "the instance has no Secret with a kubeconfig")
	}
	log.Info("kubeconfig deleted", "secret", namespace+"/"+names[0])
	return op, 0, nil
}
