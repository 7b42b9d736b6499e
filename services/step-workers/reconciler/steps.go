package reconciler

import (
	"cmp"
	"context"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Name is the name of the worker and of its details.
const Name = "reconciler"

// system is the component in errors.
const system = "reconciler"

// Details are the data that the worker saves about an instance.
type Details struct {
	// RuntimeID is the id of the cluster in the Reconciler.
	RuntimeID string `json:"runtimeId,omitempty"`
	// ClusterName is the name of the cluster at its provisioning.
	ClusterName string `json:"clusterName,omitempty"`
	// ConfigurationVersion is the applied version; 0 means that nothing was applied.
	ConfigurationVersion int64 `json:"clusterConfigurationVersion,omitempty"`
	ClusterVersion       int64 `json:"clusterVersion,omitempty"`
	// AppliedBy is the id of the operation that applied the version, KymaVersion its version of Kyma.
	AppliedBy   string `json:"appliedBy,omitempty"`
	KymaVersion string `json:"kymaVersion,omitempty"`
	// DeregisteredAt is the start of the deregistration; the zero time means none.
	DeregisteredAt time.Time `json:"deregisteredAt,omitzero"`
}

// Deps are the dependencies of the steps.
type Deps = extclient.Deps

type shared struct {
	cfg        Config
	reconciler *client
	now        func() time.Time
}

// Steps creates the steps of the worker.
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

// read returns the saved details. It takes a missing runtime id from the provisioner's details, because a killed execution may have
// applied a cluster without saving it.
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

// deregister starts the deregistration. If the Reconciler has no such cluster, deregister clears the details. Otherwise it saves the id
// and the version for the check.
func (s *shared) deregister(ctx context.Context, op worker.Operation, d Details) (gone bool, err error) {
	got, known, err := s.reconciler.delete(ctx, d.RuntimeID)
	switch {
	case err != nil:
		return false, err
	case !known:
		return true, forget(op)
	}
	// A killed execution saved no version. If the answer contains none either, the check repeats the call until the cluster is gone.
	return false, op.SaveDetails(map[string]any{
		"runtimeId": d.RuntimeID, "clusterConfigurationVersion": cmp.Or(d.ConfigurationVersion, got.ConfigurationVersion),
		"appliedBy": nil, "kymaVersion": nil, "deregisteredAt": cmp.Or(d.DeregisteredAt, s.now().UTC()),
	})
}

// forget clears all saved data.
func forget(op worker.Operation) error {
	members := map[string]any{}
	for _, name := range savedMembers() {
		members[name] = nil
	}
	return op.SaveDetails(members)
}

// savedMembers returns the members of the details.
func savedMembers() []string {
	return []string{"runtimeId", "clusterName", "clusterConfigurationVersion", "clusterVersion", "appliedBy", "kymaVersion", "deregisteredAt"}
}
