package kyma

import (
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Name is the name of the worker.
const Name = "kyma"

const component = "k8s client - keb"

// Deps is what the steps need besides the configuration.
type Deps = extclient.Deps

// Steps builds the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	client, err := cfg.Open(deps)
	if err != nil {
		return nil, err
	}
	return []worker.Step{overrides{cfg, &store{kube: client, namespace: cfg.Namespace}}}, nil
}
