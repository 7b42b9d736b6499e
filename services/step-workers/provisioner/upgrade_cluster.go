package provisioner

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// upgradeCluster starts the upgrade of Kubernetes and of the machine image; Check_Runtime waits for its end.
type upgradeCluster struct{ *shared }

// Name implements worker.Step.
func (upgradeCluster) Name() string { return "Upgrade_Cluster" }

// Describe implements worker.Described.
func (upgradeCluster) Describe() worker.Description {
	return worker.Description{
		Summary: "Starts the upgrade of the cluster to the Kubernetes version and machine image of its orchestration; " +
			"in a dry run it only reports the request.",
		Calls:   upgradeCalls(),
		Details: []string{"upgrade"},
	}
}

// Run implements worker.Step.
func (s upgradeCluster) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if d.RuntimeID == "" {
		return worker.Skip(op, noRuntime)
	}
	input, err := s.upgradeInput(op)
	if err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	if op.Upgrade != nil && op.Upgrade.DryRun {
		text, err := json.Marshal(input)
		if err != nil {
			return worker.Fail(op, outcome.Error("keb", err))
		}
		return worker.Skip(op, "dry run: upgradeShoot would get "+string(text))
	}
	if d.Upgrade.For == op.ID && d.Upgrade.OperationID != "" {
		return op, 0, nil
	}
	return s.upgrade(ctx, op, d, input, log)
}
