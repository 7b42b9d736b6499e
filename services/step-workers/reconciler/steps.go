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

type shared struct {
	cfg        Config
	reconciler *client
	now        func() time.Time
}

// Steps creates the steps of the worker.
func Steps(cfg Config, deps extclient.Deps) ([]worker.Step, error) {
	c, err := newClient(cfg, deps)
	s := &shared{cfg: cfg, reconciler: c, now: deps.Clock()}
	const status, remove = "GET /clusters/{runtimeID}/configs/{version}/status", "DELETE /clusters/{runtimeID}"
	return []worker.Step{
		worker.NewStep("Create_Cluster_Configuration", system, s.configure, worker.Description{
			Summary: "Registers the new runtime with the Reconciler, with the overrides of all steps of the stage.",
			Calls:   worker.Calls(system, "POST /clusters", remove),
			Details: savedMembers(),
		}),
		worker.NewStep("Check_Cluster_Configuration", system, s.checkClusterConfiguration, worker.Description{
			Summary: "Waits until this operation's configuration of Kyma is installed; " +
				"after a timeout, a provisioning deregisters the cluster.",
			Calls:   worker.Calls(system, status, remove),
			Details: []string{"clusterConfigurationVersion", "clusterVersion", "appliedBy"},
		}),
		worker.NewStep("Deregister_Cluster", system, s.deregisterCluster, worker.Description{
			Summary: "Starts the deregistration of the runtime.",
			Calls:   worker.Calls(system, remove),
			Details: savedMembers(),
		}),
		worker.NewStep("Check_Cluster_Deregistration", system, s.checkClusterDeregistration, worker.Description{
			Summary: "Waits until the Reconciler has deregistered the runtime.",
			Calls:   worker.Calls(system, status, remove),
			Details: savedMembers(),
		}),
		worker.NewStep("Apply_Cluster_Configuration", system, s.configure, worker.Description{
			Summary: "Sends the target version of Kyma to the Reconciler; in a dry run it only reports the request.",
			Calls:   worker.Calls(system, "POST /clusters"),
			Details: savedMembers(),
		}),
		worker.NewStep("Apply_Reconciler_Configuration", system, s.applyReconcilerConfiguration, worker.Description{
			Summary: "Sends the Reconciler's last configuration again, with the new credentials of the Service Manager " +
				"and the new kubeconfig and administrators of an own cluster. Nothing else in it changes.",
			Calls:   worker.Calls(system, "POST /clusters"),
			Details: savedMembers(),
		}),
		worker.NewStep("CheckReconcilerState", system, s.checkReconcilerState, worker.Description{
			Summary: "Waits until the runtime has the configuration of the update.",
			Calls:   worker.Calls(system, status),
		}),
	}, err
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
	op.NoteRemoved("cluster " + d.RuntimeID)
	// A killed execution saved no version, or an earlier one. If there is none in the answer either, the check repeats the call until the
	// cluster is gone.
	return false, op.SaveDetails(map[string]any{
		"runtimeId": d.RuntimeID, "clusterConfigurationVersion": cmp.Or(got.ConfigurationVersion, d.ConfigurationVersion),
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
