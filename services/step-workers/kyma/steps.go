package kyma

import (
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Name is the name of the worker and of its details.
const Name = "kyma"

// system is the name of the control plane in descriptions.
const system = "control-plane"

const component = "k8s client - keb"

// Deps are the dependencies of the steps.
type Deps = extclient.Deps

// Steps creates the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	client, err := cfg.Open(deps)
	if err != nil {
		return nil, err
	}
	published, err := newArtifacts(cfg.ArtifactsURL, deps)
	if err != nil {
		return nil, err
	}
	d := decider{
		cfg: cfg, store: &store{kube: client, namespace: cfg.Namespace}, artifacts: published,
		versions: NewVersions(client, cfg.Namespace, cfg.DefaultVersion),
	}
	return []worker.Step{provisionInitialization{d}, updateInitKymaVersion{d}, upgradeInitKymaVersion{d}, overrides{d}}, nil
}
