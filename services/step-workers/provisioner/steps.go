package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// Name is the name of the worker and of its details.
const Name = "provisioner"

// KubeconfigKey is the key of the kubeconfig in the stage memory.
const KubeconfigKey = "kubeconfig"

// component and componentDirector are the names of the systems in errors and metrics.
const (
	component         = "provisioner"
	componentDirector = "director"
)

// PlanOwnCluster is the plan whose runtime is the customer's own cluster.
const PlanOwnCluster = "own_cluster"

// Details are the data that the worker saves about an instance.
type Details struct {
	RuntimeID string `json:"runtimeId,omitempty"`
	// OperationID is the Runtime Provisioner's operation that creates the runtime. A runtime without one must be removed: its removal has begun,
	// or its creation failed.
	OperationID string `json:"operationId,omitempty"`
	// RemovalOperationID is the operation that removes the runtime.
	RemovalOperationID string `json:"removalOperationId,omitempty"`
	// Kyma is true if the runtime was ordered with Kyma, from the Runtime Provisioner of 2020.
	Kyma bool `json:"kyma,omitempty"`
	// Upgrade is the last upgrade of the cluster; the zero value means none.
	Upgrade Upgrade `json:"upgrade,omitzero"`
	// KubernetesVersion is the version that the cluster was created with or last upgraded to.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
}

// shared has the dependencies of all steps.
type shared struct {
	cfg      Config
	runtimes *Client
	shoots   shoots
	// director is nil if the search in the Director is disabled.
	director *director
	// dns are the DNS providers of new runtimes.
	dns []DNSProvider
}

// Steps creates the steps of the worker.
func Steps(cfg Config, deps extclient.Deps) ([]worker.Step, error) {
	client, err := NewClient(cfg.ClientConfig, deps)
	garden, errGarden := cfg.Open(deps)
	dns, errDNS := readDNSProviders(cfg.DNSProvidersFile)
	s := &shared{cfg: cfg, runtimes: client, shoots: shoots{garden, cfg.Namespace()}, dns: dns}
	lookUps := worker.Calls(kube.SystemGardener, "get shoots")
	var directorCalls []worker.Call
	var errDirector error
	if cfg.DirectorURL != "" {
		s.director, errDirector = newDirector(cfg, deps)
		directorCalls = worker.Calls(componentDirector, "runtimes")
	}
	lookUps = append(lookUps, directorCalls...)
	saved := []string{"runtimeId", "operationId", "removalOperationId", "upgrade", "kyma", "kubernetesVersion"}
	upgradeCalls := worker.Calls(component, "runtimeStatus", "upgradeShoot")
	orderCalls := worker.Calls(component, "runtimeStatus", "deprovisionRuntime", "provisionRuntime")
	return []worker.Step{
		worker.NewStep("Create_Runtime_Without_Kyma", component, s.createRuntimeWithoutKyma, worker.Description{
			Summary: "Orders the runtime from the Runtime Provisioner.",
			Calls:   slices.Concat(lookUps, orderCalls),
			Details: []string{"runtimeId", "operationId", "removalOperationId", "upgrade"},
		}),
		worker.NewStep("Create_Runtime", component, s.createRuntime, worker.Description{
			Summary: "Orders the runtime from the Runtime Provisioner, with Kyma and the overrides of all earlier steps.",
			Calls:   slices.Concat(directorCalls, orderCalls),
			Details: saved,
		}),
		worker.NewStep("Check_Runtime", component, s.checkRuntime, worker.Description{
			Summary: "Waits for the end of the runtime's creation or of its cluster's upgrade.",
			Calls:   worker.Calls(component, "runtimeOperationStatus", "runtimeStatus", "upgradeShoot"),
			Details: []string{"operationId", "upgrade", "kubernetesVersion"},
		}),
		worker.NewStep("Get_Kubeconfig", component, s.getKubeconfig, worker.Description{
			Summary:     "Gets the kubeconfig of the runtime; for an own cluster that of the order.",
			Calls:       worker.Calls(component, "runtimeStatus"),
			Details:     []string{"runtimeId"},
			StageMemory: []string{KubeconfigKey},
		}),
		worker.NewStep("Remove_Runtime", component, s.removeRuntime, worker.Description{
			Summary: "Starts the removal of the runtime.",
			Calls:   slices.Concat(lookUps, worker.Calls(component, "runtimeStatus", "deprovisionRuntime")),
			Details: saved,
		}),
		worker.NewStep("Check_Runtime_Removal", component, s.checkRuntimeRemoval, worker.Description{
			Summary: "Waits until the runtime is removed, and restarts a failed removal.",
			Calls:   slices.Concat(lookUps, worker.Calls(component, "runtimeOperationStatus", "runtimeStatus", "deprovisionRuntime")),
			Details: saved,
		}),
		worker.NewStep("Upgrade_Shoot", component, s.upgradeShoot, worker.Description{
			Summary: "Applies the update to the cluster, with its administrators, login configuration and networking filter.",
			Calls:   upgradeCalls,
			Details: []string{"upgrade"},
		}),
		worker.NewStep("Upgrade_Cluster", component, s.upgradeCluster, worker.Description{
			Summary: "Starts the upgrade of the cluster to the Kubernetes version and machine image of its orchestration; " +
				"in a dry run it only reports the request.",
			Calls:   upgradeCalls,
			Details: []string{"upgrade"},
		}),
	}, errors.Join(err, errGarden, errDNS, errDirector)
}

// read returns the saved details of op's instance.
func read(op worker.Operation) (Details, error) {
	var d Details
	return d, op.Details(Name, &d)
}

// find gets a missing runtime id from the Director, if that is configured. An execution that was killed after the order saved no id.
func (s *shared) find(ctx context.Context, op worker.Operation, d *Details) error {
	if d.RuntimeID != "" || s.director == nil {
		return nil
	}
	id, err := s.director.runtimeOf(ctx, op.Context.GlobalAccountID, op.InstanceID)
	if err != nil {
		return fmt.Errorf("look up the runtime of the instance: %w", err)
	}
	d.RuntimeID = id
	return nil
}

// findAnywhere is find, followed by a search for the Shoot of the instance.
func (s *shared) findAnywhere(ctx context.Context, op worker.Operation, d *Details) error {
	if err := s.find(ctx, op, d); err != nil || d.RuntimeID != "" {
		return err
	}
	var err error
	d.RuntimeID, err = s.shoots.runtimeOf(ctx, op)
	return err
}
