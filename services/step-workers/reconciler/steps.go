package reconciler

import (
	"cmp"
	"context"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Name is the name of the worker and of its part of the details.
const Name = "reconciler"

// system is the component that errors name.
const system = "reconciler"

// Details is what the worker saves about an instance.
type Details struct {
	// RuntimeID is the id under which the Reconciler knows the cluster.
	RuntimeID string `json:"runtimeId,omitempty"`
	// ClusterName is the name that the cluster was given when it was provisioned.
	ClusterName string `json:"clusterName,omitempty"`
	// ConfigurationVersion is the version that is checked; 0 means that nothing was applied.
	ConfigurationVersion int64 `json:"clusterConfigurationVersion,omitempty"`
	ClusterVersion       int64 `json:"clusterVersion,omitempty"`
	// AppliedBy is the id of the operation that has applied it, KymaVersion the version of Kyma that it brings.
	AppliedBy   string `json:"appliedBy,omitempty"`
	KymaVersion string `json:"kymaVersion,omitempty"`
	// DeregisteredAt is when the deregistration was started; the zero time means it was not.
	DeregisteredAt time.Time `json:"deregisteredAt,omitzero"`
}

// Deps is what the steps need besides the configuration.
type Deps = extclient.Deps

type shared struct {
	cfg        Config
	reconciler *client
	now        func() time.Time
}

// Steps builds the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c, err := newClient(cfg, deps)
	if err != nil {
		return nil, err
	}
	s := &shared{cfg: cfg, reconciler: c, now: deps.Now}
	if s.now == nil {
		s.now = time.Now
	}
	return []worker.Step{
		createClusterConfiguration{s},
		checkClusterConfiguration{s},
		deregisterCluster{s},
		checkClusterDeregistration{s},
		applyClusterConfiguration{s},
		applyReconcilerConfiguration{s},
		checkReconcilerState{s},
	}, nil
}

// read is what the worker has saved, with the runtime id that the provisioner has saved where it has none: an attempt
// that died may have applied a cluster without saving it.
func read(op worker.Operation) (Details, error) {
	var d Details
	if err := op.Details(Name, &d); err != nil || d.RuntimeID != "" {
		return d, err
	}
	var runtime provisioner.Details
	err := op.Details(provisioner.Name, &runtime)
	d.RuntimeID = runtime.RuntimeID
	return d, err
}

// deregister starts the deregistration. A cluster that the Reconciler does not know is gone, and all about it is forgotten; else
// the id and the version are kept for the check.
func (s *shared) deregister(ctx context.Context, op worker.Operation, d Details) (gone bool, err error) {
	got, known, err := s.reconciler.delete(ctx, d.RuntimeID)
	switch {
	case err != nil:
		return false, err
	case !known:
		return true, forget(op)
	}
	// An attempt that died has saved no version. Where the answer has none either, the check asks again until the cluster is gone.
	return false, op.SaveDetails(map[string]any{
		"runtimeId": d.RuntimeID, "clusterConfigurationVersion": cmp.Or(d.ConfigurationVersion, got.ConfigurationVersion),
		"appliedBy": nil, "kymaVersion": nil, "deregisteredAt": cmp.Or(d.DeregisteredAt, s.now().UTC()),
	})
}

// forget clears everything that was saved.
func forget(op worker.Operation) error {
	members := map[string]any{}
	for _, name := range savedMembers() {
		members[name] = nil
	}
	return op.SaveDetails(members)
}

// savedMembers names the members of the details.
func savedMembers() []string {
	return []string{"runtimeId", "clusterName", "clusterConfigurationVersion", "clusterVersion", "appliedBy", "kymaVersion", "deregisteredAt"}
}
