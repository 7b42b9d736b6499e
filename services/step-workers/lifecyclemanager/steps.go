package lifecyclemanager

import (
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/kyma"
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
	// Template is the text of the Kyma resource that a new runtime gets.
	Template string `json:"kymaTemplate,omitempty"`
	// SecretNamespace and Secret name the Secret with the kubeconfig.
	SecretNamespace string `json:"secretNamespace,omitempty"`
	Secret          string `json:"secretName,omitempty"`
}

// Deps is what the steps need besides the configuration.
type Deps = extclient.Deps

// noRuntime is why an update or an upgrade has nothing to do here.
const noRuntime = "the instance has no runtime: it is suspended"

type shared struct {
	cfg      Config
	kube     *kube.Client
	versions *kyma.Versions
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
	s := &shared{cfg: cfg, kube: client, versions: kyma.NewVersions(client, cfg.ConfigNamespace, cfg.DefaultVersion)}
	return []worker.Step{
		initKymaTemplate{s}, syncKubeconfig{s}, applyKyma{s}, deleteKymaResource{s}, checkKymaResourceDeleted{s}, deleteKubeconfig{s},
	}, nil
}

// read returns what the worker has saved and the id of the runtime, which is empty when the instance has none.
func read(op worker.Operation) (Details, string, error) {
	var d Details
	var runtime provisioner.Details
	err := errors.Join(op.Details(Name, &d), op.Details(provisioner.Name, &runtime))
	return d, runtime.RuntimeID, err
}

// withoutRuntime ends a step for an instance that has no runtime id.
func withoutRuntime(op worker.Operation) (worker.Operation, time.Duration, error) {
	if op.Type != event.Provision {
		return worker.Skip(op, noRuntime)
	}
	return worker.Fail(op, &worker.Error{Component: "keb", Message: "no runtime id is saved: the runtime was not created"})
}
