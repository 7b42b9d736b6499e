package btp

import (
	"context"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Name is the name of the worker and of its details.
const Name = "btp"

// Component is the Kyma component with the overrides.
const Component = "btp-operator"

const component = "btp"

// system is the name of the runtime's API in errors and metrics.
const system = "runtime"

// Details are the data that the worker saves about an instance.
type Details struct {
	// ClusterID is the id of the runtime in the Service Manager.
	ClusterID string `json:"smClusterId,omitempty"`
	// CleanupLeft is the number of objects in the runtime at the deadline of BTPOperator_Cleanup.
	CleanupLeft *left `json:"cleanupLeft,omitempty"`
}

// Deps are the dependencies of the steps.
type Deps = extclient.Deps

// runtimes returns the kubeconfig of a runtime.
type runtimes interface {
	RuntimeStatus(ctx context.Context, account, runtimeID string) (provisioner.RuntimeStatus, error)
}

// shared has the dependencies of all steps.
type shared struct {
	cfg      Config
	deps     Deps
	runtimes runtimes
}

// Steps creates the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p, err := provisioner.NewClient(cfg.ClientConfig, deps)
	if err != nil {
		return nil, err
	}
	s := &shared{cfg: cfg, deps: deps, runtimes: p}
	return []worker.Step{operatorOverrides{s}, injectCredentials{s}, cleanup{s}}, nil
}

func (s *shared) open(kubeconfig []byte) (*kube.Client, error) {
	return kube.FromKubeconfig(system, kubeconfig, s.cfg.RuntimeTimeout, s.deps)
}
