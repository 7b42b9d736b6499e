package provisioner

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// removeRuntime starts the removal of the runtime.
type removeRuntime struct{ *shared }

// Name implements worker.Step.
func (removeRuntime) Name() string { return "Remove_Runtime" }

// Describe implements worker.Described.
func (s removeRuntime) Describe() worker.Description {
	return worker.Description{
		Summary: "Starts the removal of the runtime.",
		Calls: lookUps(s.director,
			worker.Call{System: component, Operation: "runtimeStatus"},
			worker.Call{System: component, Operation: "deprovisionRuntime"},
		),
		Details: []string{"runtimeId", "operationId", "removalOperationId", "upgrade", "kyma"},
	}
}

// Run implements worker.Step.
func (s removeRuntime) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Plan.Name == PlanOwnCluster {
		return worker.Skip(op, "the cluster belongs to the customer")
	}
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if d.RemovalOperationID != "" {
		return op, 0, nil
	}
	// From now on, an unsuspension must not use this runtime, even if the removal fails.
	if err := op.SaveDetails(map[string]any{"operationId": nil}); err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	r, err := s.remove(ctx, op, &d)
	switch {
	case err != nil:
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	case r.gone:
		if err := forget(op); err != nil {
			return worker.Fail(op, outcome.Error(component, err))
		}
		return worker.Skip(op, "there is no runtime to remove")
	case r.waiting:
		return worker.Wait(op, s.cfg.RemovalPollInterval, otherFirst)
	}
	log.Info("runtime removal started", "runtime_id", d.RuntimeID)
	return op, 0, op.SaveDetails(Details{RuntimeID: d.RuntimeID, RemovalOperationID: r.operationID, Kyma: d.Kyma})
}
