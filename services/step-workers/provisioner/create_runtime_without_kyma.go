package provisioner

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/hyperscaler"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// createRuntimeWithoutKyma orders the runtime from the Runtime Provisioner, once.
type createRuntimeWithoutKyma struct{ *shared }

// Name implements worker.Step.
func (createRuntimeWithoutKyma) Name() string { return "Create_Runtime_Without_Kyma" }

// Describe implements worker.Described.
func (createRuntimeWithoutKyma) Describe() worker.Description {
	return worker.Description{
		Summary: "Orders the runtime from the Runtime Provisioner.",
		Calls: []worker.Call{
			{System: componentDirector, Operation: "runtimes"},
			{System: component, Operation: "runtimeStatus"},
			{System: component, Operation: "deprovisionRuntime"},
			{System: component, Operation: "provisionRuntime"},
		},
		Details: []string{"runtimeId", "operationId", "removalOperationId", "upgrade"},
	}
}

// Run implements worker.Step.
func (s createRuntimeWithoutKyma) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	return s.order(ctx, op, log, func(*RuntimeInput) error { return nil })
}

// order orders the runtime, unless it is there already. complete adds to the order what newRuntimeInput does not know.
func (s *shared) order(ctx context.Context, op worker.Operation, log *slog.Logger, complete func(*RuntimeInput) error) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if d.RuntimeID != "" && d.OperationID != "" {
		return op, 0, nil
	}
	// A suspension that failed has begun with the removal, and what it has taken away already would be missing in this runtime.
	former := d.RuntimeID != ""
	if err := s.find(ctx, op, &d); err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	if d.RuntimeID != "" {
		status, err := s.runtimes.RuntimeStatus(ctx, op.Context.Subscription(), d.RuntimeID)
		switch last := status.LastOperation; {
		case extclient.IsNotFound(err), err == nil && last.Removal() && last.State == StateSucceeded:
			// What the Director still lists is the runtime that the instance had before it was suspended.
		case err != nil:
			return outcome.Of(op, component, s.cfg.RetryInterval, err)
		case former, last.Removal():
			r, err := s.remove(ctx, op, &d)
			if err != nil {
				return outcome.Of(op, component, s.cfg.RetryInterval, err)
			}
			if !r.gone {
				return worker.Wait(op, s.cfg.RetryInterval, "the former runtime of the instance is being removed")
			}
		default:
			log.Info("found the runtime of an earlier attempt", "runtime_id", d.RuntimeID)
			return op, 0, saveOrdered(op, d.RuntimeID, last.ID)
		}
	}
	var saved hyperscaler.Details
	if err := op.Details(hyperscaler.Name, &saved); err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	input, err := newRuntimeInput(s.cfg, op, saved.TargetSecret)
	if err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	if err := complete(&input); err != nil {
		return outcome.Of(op, "keb", s.cfg.RetryInterval, err)
	}
	status, err := s.runtimes.ProvisionRuntime(ctx, op.Context.Subscription(), op.Context.SubaccountID, input)
	if err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	log.Info("runtime ordered", "runtime_id", status.RuntimeID)
	return op, 0, saveOrdered(op, status.RuntimeID, status.ID)
}

// saveOrdered saves the runtime that was ordered. What was saved about a former one is not about it.
func saveOrdered(op worker.Operation, runtimeID, operationID string) error {
	return op.SaveDetails(map[string]any{"runtimeId": runtimeID, "operationId": operationID, "removalOperationId": nil, "upgrade": nil})
}
