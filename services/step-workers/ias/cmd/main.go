// Command cmd runs the ias worker.
package main

import (
	"context"
	"log/slog"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/ias"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

func main() {
	worker.Main(ias.Name, setup.Version(), func(_ context.Context, log *slog.Logger) ([]worker.Step, error) {
		return setup.FromEnv(ias.Steps, extclient.Deps{Log: log})
	})
}
