package lifecyclemanager

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// applyKyma creates the Kyma resource, or makes it what it should be.
type applyKyma struct{ *shared }

// Name implements worker.Step.
func (applyKyma) Name() string { return "Apply_Kyma" }

// Describe implements worker.Described.
func (applyKyma) Describe() worker.Description {
	return worker.Description{
		Summary: "Creates the Kyma resource of the runtime, or makes it what it should be.",
		Calls: []worker.Call{
			{System: system, Operation: "list kymas"},
			{System: system, Operation: "delete kymas"},
			{System: system, Operation: "get kymas"},
			{System: system, Operation: "create kymas"},
			{System: system, Operation: "update kymas"},
		},
		Details: []string{"kymaNamespace", "kymaName"},
	}
}

// Run implements worker.Step.
func (s applyKyma) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	var runtime provisioner.Details
	if err := op.Details(provisioner.Name, &runtime); err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if runtime.RuntimeID == "" {
		return worker.Fail(op, &worker.Error{Component: "keb", Message: "no runtime id is saved: the runtime was not created"})
	}
	// A suspension that was given up may have left the resource of a former runtime.
	names, err := s.kymas.find(ctx, op.InstanceID, "")
	if err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	for _, n := range names {
		if n == resourceName(runtime.RuntimeID) {
			continue
		}
		log.Info("kyma resource of a former runtime deleted", "kyma_name", n)
		if err := s.kymas.delete(ctx, n); err != nil {
			return outcome.Of(op, component, s.cfg.RetryInterval, err)
		}
	}
	if err := s.kymas.apply(ctx, op, runtime.RuntimeID); err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	log.Info("kyma resource applied", "kyma_name", resourceName(runtime.RuntimeID))
	return op, 0, op.SaveDetails(Details{Namespace: s.cfg.Namespace, Resource: resourceName(runtime.RuntimeID)})
}
