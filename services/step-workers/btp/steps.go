package btp

import (
	"context"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Name is the name of the worker and of its part of the details.
const Name = "btp"

// Component is the Kyma component that gets the overrides.
const Component = "btp-operator"

const component = "btp"

// system is the name of the runtime's API in errors and metrics.
const system = "runtime"

// Details is what the worker saves about an instance.
type Details struct {
	// ClusterID identifies the runtime to the Service Manager.
	ClusterID string `json:"smClusterId,omitempty"`
	// CleanupLeft is what BTPOperator_Cleanup has found in the runtime when its time was over.
	CleanupLeft *left `json:"cleanupLeft,omitempty"`
}

// Deps is what the steps need besides the configuration.
type Deps = extclient.Deps

// runtimes tells how a runtime is reached.
type runtimes interface {
	RuntimeStatus(ctx context.Context, account, runtimeID string) (provisioner.RuntimeStatus, error)
}

// shared is what the steps have in common.
type shared struct {
	cfg      Config
	deps     Deps
	runtimes runtimes
}

// Steps builds the steps of the worker.
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
