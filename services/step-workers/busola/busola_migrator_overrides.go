package busola

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// Component is the Kyma component that gets the overrides.
const Component = "busola-migrator"

// migratorOverrides tells the dashboard of the runtime which instance and domain it belongs to.
type migratorOverrides struct{}

// Name implements worker.Step.
func (migratorOverrides) Name() string { return "BusolaMigratorOverrides" }

// Describe implements worker.Described.
func (migratorOverrides) Describe() worker.Description {
	return worker.Description{
		Summary:     "Tells the dashboard by overrides which instance and domain it belongs to.",
		StageMemory: []string{"overrides:" + Component},
	}
}

// Run implements worker.Step.
func (migratorOverrides) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	op.SetOverrides(Component, []worker.Override{
		{Key: "deployment.env.instanceID", Value: op.InstanceID},
		{Key: "deployment.env.domain", Value: op.Runtime.ShootDomain},
	})
	return op, 0, nil
}
