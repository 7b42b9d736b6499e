// Command cmd runs the lifecycle-manager worker.
package main

import (
	"context"
	"log/slog"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
	"github.com/kyma-project/keb/services/step-workers/lifecyclemanager"
)

func main() {
	worker.Main(lifecyclemanager.Name, setup.Version(), func(_ context.Context, log *slog.Logger) ([]worker.Step, error) {
		return setup.FromEnv(lifecyclemanager.Steps, extclient.Deps{Log: log})
	})
}
