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

// checkKymaResourceDeleted waits until the Lifecycle Manager has deleted the Kyma resource with its modules.
type checkKymaResourceDeleted struct{ *shared }

// Name implements worker.Step.
func (checkKymaResourceDeleted) Name() string { return "Check_Kyma_Resource_Deleted" }

// Describe implements worker.Described.
func (checkKymaResourceDeleted) Describe() worker.Description {
	return worker.Description{
		Summary: "Waits until the Lifecycle Manager has deleted the Kyma resource with its modules.",
		Calls: []worker.Call{
			{System: system, Operation: "list kymas"},
			{System: system, Operation: "get kymas"},
		},
		Details: []string{"kymaNamespace", "kymaName"},
	}
}

// Run implements worker.Step.
func (s checkKymaResourceDeleted) Run(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	d, runtimeID, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	namespace := cmp.Or(d.Namespace, s.cfg.Namespace)
	names, err := s.find(ctx, kube.Kymas, namespace, op.InstanceID, cmp.Or(d.Resource, resourceName(runtimeID)))
	if err != nil {
		return outcome.Of(op, component, s.cfg.PollInterval, err)
	}
	if len(names) > 0 {
		return worker.Wait(op, s.cfg.PollInterval, "the Kyma resource is being deleted")
	}
	return op, 0, op.SaveDetails(map[string]any{"kymaNamespace": nil, "kymaName": nil})
}
