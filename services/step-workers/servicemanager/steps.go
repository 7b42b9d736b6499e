package servicemanager

import (
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Name is the name of the worker.
const Name = "service-manager"

// Component is the Kyma component with the overrides.
const Component = "service-manager-proxy"

// Deps are the dependencies of the steps.
type Deps = extclient.Deps

// Steps creates the steps of the worker.
func Steps(cfg Config, _ Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return []worker.Step{overrides{cfg}}, nil
}
