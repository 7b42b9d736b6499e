package busola

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// Component is the Kyma component that gets the overrides.
const Component = "busola-migrator"

// migratorOverrides tells the component that leads users of a runtime to the dashboard which instance and domain it belongs to,
// and where the dashboard is.
type migratorOverrides struct{ cfg Config }

// Name implements worker.Step.
func (migratorOverrides) Name() string { return "BusolaMigratorOverrides" }

// Describe implements worker.Described.
func (migratorOverrides) Describe() worker.Description {
	return worker.Description{
		Summary:     "Sets Busola's configuration: the address of the dashboard, the domain and the kubeconfig of the runtime.",
		StageMemory: []string{"overrides:" + Component},
	}
}

// Run implements worker.Step.
func (s migratorOverrides) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	entries := []worker.Override{
		{Key: "deployment.env.instanceID", Value: op.InstanceID},
		{Key: "deployment.env.domain", Value: op.Runtime.ShootDomain},
		{Key: "global.domainName", Value: op.Runtime.ShootDomain},
	}
	if s.cfg.URL != "" {
		entries = append(entries, worker.Override{Key: "deployment.env.busolaURL", Value: s.cfg.URL})
	}
	if op.Plan.Name != planOwnCluster {
		// The broker serves the kubeconfig under the id of the instance, but none of a cluster that is not ours.
		entries = append(entries, worker.Override{Key: "deployment.env.kubeconfigID", Value: op.InstanceID})
	}
	op.SetOverrides(Component, entries)
	return op, 0, nil
}

const planOwnCluster = "own_cluster"
