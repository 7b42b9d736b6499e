// Command cmd runs the reconciler worker.
package main

import (
	"context"
	"log/slog"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
	"github.com/kyma-project/keb/services/step-workers/reconciler"
)

func main() {
	worker.Main(reconciler.Name, setup.Version(), func(_ context.Context, log *slog.Logger) ([]worker.Step, error) {
		return setup.FromEnv(reconciler.Steps, extclient.Deps{Log: log})
	})
}
