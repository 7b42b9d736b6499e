package busola

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// Component is the Kyma component with the overrides. Versions of Kyma since September 2022 do not have it, and the Reconciler receives
// no overrides of components that a version does not have.
const Component = "busola-migrator"

// migratorOverrides configures the kubeconfig of the component that leads users of a runtime to the dashboard.
func migratorOverrides(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	op.SetOverrides(Component, []worker.Override{
		// The broker serves the kubeconfig under the id of the instance.
		{Key: "deployment.env.kubeconfigID", Value: op.InstanceID},
		{Key: "global.istio.gateway.name", Value: "kyma-gateway"},
	})
	return op, 0, nil
}
