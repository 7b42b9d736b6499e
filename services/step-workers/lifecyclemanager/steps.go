package lifecyclemanager

import (
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Name is the name of the worker and of its part of the details.
const Name = "lifecycle-manager"

const component = "k8s client - keb"

// system is the name of the control plane in errors and metrics.
const system = "control-plane"

// Details is what the worker saves about an instance.
type Details struct {
	// Namespace and Resource name the Kyma resource.
	Namespace string `json:"kymaNamespace,omitempty"`
	Resource  string `json:"kymaName,omitempty"`
}

// Deps is what the steps need besides the configuration.
type Deps = extclient.Deps

type shared struct {
	cfg   Config
	kymas *kymas
}

// Steps builds the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	client, err := cfg.Open(deps)
	if err != nil {
		return nil, err
	}
	s := &shared{cfg: cfg, kymas: &kymas{kube: client, cfg: cfg}}
	return []worker.Step{applyKyma{s}, deleteKymaResource{s}, checkKymaResourceDeleted{s}}, nil
}

// name is the name of the instance's Kyma resource as far as the details know it.
func name(op worker.Operation) (string, error) {
	var d Details
	if err := op.Details(Name, &d); err != nil || d.Resource != "" {
		return d.Resource, err
	}
	var runtime provisioner.Details
	err := op.Details(provisioner.Name, &runtime)
	return resourceName(runtime.RuntimeID), err
}
