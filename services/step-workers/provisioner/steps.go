package provisioner

import (
	"context"
	"fmt"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Name is the name of the worker and of its part of the details.
const Name = "provisioner"

// KubeconfigKey is where Get_Kubeconfig puts the kubeconfig in the stage memory.
const KubeconfigKey = "kubeconfig"

// component and componentDirector name the systems in errors and metrics.
const (
	component         = "provisioner"
	componentDirector = "director"
)

// PlanOwnCluster is the plan whose runtime is the customer's own cluster.
const PlanOwnCluster = "own_cluster"

// Details is what the worker saves about an instance.
type Details struct {
	RuntimeID string `json:"runtimeId,omitempty"`
	// OperationID is the Runtime Provisioner's operation that creates the runtime. A runtime without one is to be removed.
	OperationID string `json:"operationId,omitempty"`
	// RemovalOperationID is the one that removes it.
	RemovalOperationID string `json:"removalOperationId,omitempty"`
	// Upgrade is the last upgrade of the cluster; the zero value means that there was none.
	Upgrade Upgrade `json:"upgrade,omitzero"`
}

// Deps is what the steps need besides the configuration.
type Deps = extclient.Deps

// runtimes is what the steps need of the Runtime Provisioner.
type runtimes interface {
	ProvisionRuntime(ctx context.Context, account, subaccount string, input RuntimeInput) (OperationStatus, error)
	DeprovisionRuntime(ctx context.Context, account, runtimeID string) (string, error)
	UpgradeShoot(ctx context.Context, account, runtimeID string, input UpgradeInput) (OperationStatus, error)
	LastOperation(ctx context.Context, account, runtimeID string) (OperationStatus, error)
	OperationStatus(ctx context.Context, account, operationID string) (OperationStatus, error)
	RuntimeStatus(ctx context.Context, account, runtimeID string) (RuntimeStatus, error)
}

// shared is what the steps have in common.
type shared struct {
	cfg      Config
	runtimes runtimes
	director *director
}

// Steps builds the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	client, err := NewClient(cfg.ClientConfig, deps)
	if err != nil {
		return nil, err
	}
	d, err := newDirector(cfg, deps)
	if err != nil {
		return nil, err
	}
	s := &shared{cfg: cfg, runtimes: client, director: d}
	return []worker.Step{
		createRuntimeWithoutKyma{s},
		createRuntime{s},
		checkRuntime{s},
		getKubeconfig{s},
		removeRuntime{s},
		checkRuntimeRemoval{s},
		upgradeShoot{s},
		upgradeCluster{s},
	}, nil
}

// read is what the worker has saved about the instance of op.
func read(op worker.Operation) (Details, error) {
	var d Details
	return d, op.Details(Name, &d)
}

// find completes the runtime id from the Director: a worker that died after it had created the runtime did not save it.
func (s *shared) find(ctx context.Context, op worker.Operation, d *Details) error {
	if d.RuntimeID != "" {
		return nil
	}
	id, err := s.director.runtimeOf(ctx, op.Context.Subscription(), op.InstanceID)
	if err != nil {
		return fmt.Errorf("look up the runtime of the instance: %w", err)
	}
	d.RuntimeID = id
	return nil
}

// failed is the error of an operation of the Runtime Provisioner that failed.
func failed(status OperationStatus) *worker.Error {
	e := &worker.Error{Component: component, Reason: "err_provisioner_nil_last_error", Message: "the runtime provisioner gave no reason"}
	if l := status.LastError; l != nil && (l.Message != "" || l.Reason != "") {
		e.Message = extclient.Sanitize(l.Message)
		if l.Reason != "" {
			e.Reason = extclient.Sanitize(l.Reason)
		}
		if l.Component != "" {
			e.Component = extclient.Sanitize(l.Component)
		}
	}
	return e
}
