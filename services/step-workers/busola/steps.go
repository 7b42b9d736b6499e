package busola

import (
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Name is the name of the worker.
const Name = "busola"

// Config is the configuration of the worker. It is empty, because the worker calls no system.
type Config struct{}

// Steps creates the steps of the worker.
func Steps(Config, extclient.Deps) ([]worker.Step, error) {
	return []worker.Step{worker.NewStep("BusolaMigratorOverrides", "", migratorOverrides, worker.Description{
		Summary:     "Sets Busola's configuration: the kubeconfig and the gateway of the runtime. Versions of Kyma without busola-migrator do not get it.",
		StageMemory: []string{"overrides:" + Component},
	})}, nil
}
