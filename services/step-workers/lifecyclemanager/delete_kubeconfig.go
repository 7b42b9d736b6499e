package lifecyclemanager

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// deleteKubeconfig deletes the Secret with the kubeconfig. It runs after the removal of the runtime, when the Lifecycle Manager no
// longer needs the Secret.
type deleteKubeconfig struct{ *shared }

// Name implements worker.Step.
func (deleteKubeconfig) Name() string { return "Delete_Kubeconfig" }

// Describe implements worker.Described.
func (deleteKubeconfig) Describe() worker.Description {
	return worker.Description{
		Summary: "Deletes the Secret with the kubeconfig of the runtime from the control plane.",
		Calls: []worker.Call{
			{System: system, Operation: "list secrets"},
			{System: system, Operation: "get secrets"},
			{System: system, Operation: "delete secrets"},
		},
		Details: []string{"secretNamespace", "secretName", "kymaTemplate"},
	}
}

// Run implements worker.Step.
func (s deleteKubeconfig) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, _, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	namespace := cmp.Or(d.SecretNamespace, s.cfg.Namespace)
	names, err := s.find(ctx, kube.Secrets, namespace, op.InstanceID, d.Secret)
	if err != nil {
		return outcome.Of(op, component, s.cfg.KubeconfigInterval, err)
	}
	for _, n := range names {
		if err := s.kube.Delete(ctx, kube.Secrets, namespace, n); err != nil {
			return outcome.Of(op, component, s.cfg.KubeconfigInterval, err)
		}
	}
	if err := op.SaveDetails(map[string]any{"secretNamespace": nil, "secretName": nil, "kymaTemplate": nil}); err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if len(names) == 0 {
		return worker.Skip(op, "the instance has no Secret with a kubeconfig")
	}
	log.Info("kubeconfig deleted", "secret", namespace+"/"+names[0])
	return op, 0, nil
}
