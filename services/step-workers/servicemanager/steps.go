package servicemanager

import (
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Name is the name of the worker.
const Name = "service-manager"

// Component is the Kyma component with the overrides.
const Component = "service-manager-proxy"

// Steps creates the steps of the worker.
func Steps(cfg Config, _ extclient.Deps) ([]worker.Step, error) {
	return []worker.Step{worker.NewStep("ServiceManagerOverrides", "", cfg.overrides, worker.Description{
		Summary:     "Sets the overrides with the credentials of the Service Manager proxy: those of the order, or the configured ones.",
		StageMemory: []string{"overrides:" + Component},
	})}, nil
}
