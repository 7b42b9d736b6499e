// Command cmd runs the edp worker.
package main

import (
	"context"
	"log/slog"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/edp"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

func main() {
	worker.Main(edp.Name, setup.Version(), func(_ context.Context, log *slog.Logger) ([]worker.Step, error) {
		return setup.FromEnv(edp.Steps, extclient.Deps{Log: log})
	})
}
