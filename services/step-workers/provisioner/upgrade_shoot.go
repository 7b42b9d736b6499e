package provisioner

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// upgradeShoot applies an update to the cluster, even if only the context of the instance changed; Check_Runtime waits for its end.
type upgradeShoot struct{ *shared }

// Name implements worker.Step.
func (upgradeShoot) Name() string { return "Upgrade_Shoot" }

// Describe implements worker.Described.
func (upgradeShoot) Describe() worker.Description {
	return worker.Description{
		Summary: "Applies the update to the cluster, with its administrators, login configuration and networking filter.",
		Calls:   upgradeCalls(),
		Details: []string{"upgrade"},
	}
}

func upgradeCalls() []worker.Call {
	return []worker.Call{{System: component, Operation: "runtimeStatus"}, {System: component, Operation: "upgradeShoot"}}
}

// Run implements worker.Step.
func (s upgradeShoot) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if d.RuntimeID == "" {
		return worker.Skip(op, noRuntime)
	}
	if d.Upgrade.For == op.ID && d.Upgrade.OperationID != "" {
		return op, 0, nil
	}
	input, err := s.upgradeInput(op)
	if err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	return s.upgrade(ctx, op, d, input, log)
}
