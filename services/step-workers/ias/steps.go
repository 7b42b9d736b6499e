package ias

import (
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

// Name is the name of the worker.
const Name = "ias"

const component = "ias"

// Deps are the dependencies of the steps.
type Deps = extclient.Deps

// Steps creates the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.URL == "" {
		return setup.Without(component, "KEB_IAS_URL", []worker.Step{registration{}, deregistration{}}, deps), nil
	}
	c, err := newClient(cfg, deps)
	if err != nil {
		return nil, err
	}
	return []worker.Step{registration{cfg, c}, deregistration{cfg, c}}, nil
}
