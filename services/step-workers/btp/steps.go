package btp

import (
	"time"

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

// shared has the dependencies of all steps.
type shared struct {
	cfg      Config
	deps     extclient.Deps
	now      func() time.Time
	runtimes *provisioner.Client
}

// Steps creates the steps of the worker.
func Steps(cfg Config, deps extclient.Deps) ([]worker.Step, error) {
	p, err := provisioner.NewClient(cfg.ClientConfig, deps)
	s := &shared{cfg: cfg, deps: deps, now: deps.Clock(), runtimes: p}
	return []worker.Step{
		worker.NewStep("BTPOperatorOverrides", component, s.operatorOverrides, worker.Description{
			Summary:     "Sets the overrides with the Service Manager credentials of the BTP operator.",
			Calls:       worker.Calls(system, "get configmaps", "create namespaces", "create configmaps"),
			Details:     []string{"smClusterId"},
			StageMemory: []string{"overrides:" + Component},
		}),
		worker.NewStep("Inject_BTP_Operator_Credentials", component, s.injectCredentials, worker.Description{
			Summary: "Creates or updates the Secret with the Service Manager credentials for the BTP manager in the runtime. A Secret that " +
				"customers manage themselves is not changed.",
			Calls:   worker.Calls(system, "get secrets", "create namespaces", "create secrets", "update secrets", "delete secrets"),
			Details: []string{"smClusterId"},
		}),
		worker.NewStep("BTPOperator_Cleanup", component, s.cleanup, worker.Description{
			Summary: "Deletes the service bindings and service instances from the runtime. After 30 minutes the step removes the " +
				"finalizers of the remaining objects and is not completed; in a suspension it is completed.",
			Calls: append(worker.Calls("provisioner", "runtimeStatus"), worker.Calls(system,
				"list servicebindings", "delete servicebindings", "patch servicebindings",
				"list serviceinstances", "delete serviceinstances", "patch serviceinstances", "get secrets", "delete secrets")...),
			Details: []string{"cleanupLeft"},
		}),
	}, err
}

func (s *shared) open(kubeconfig []byte) (*kube.Client, error) {
	return kube.FromKubeconfig(system, kubeconfig, s.cfg.RuntimeTimeout, s.deps)
}
