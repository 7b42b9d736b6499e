// Command cmd runs the provisioner worker.
package main

import (
	"context"
	"log/slog"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

func main() {
	worker.Main(provisioner.Name, setup.Version(), func(_ context.Context, log *slog.Logger) ([]worker.Step, error) {
		return setup.FromEnv(provisioner.Steps, extclient.Deps{Log: log})
	})
}
