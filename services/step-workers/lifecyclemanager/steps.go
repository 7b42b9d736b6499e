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

// Name is the name of the worker and of its details.
const Name = "lifecycle-manager"

const component = "k8s client - keb"

// system is the name of the control plane in errors and metrics.
const system = "control-plane"

// Details are the data that the worker saves about an instance.
type Details struct {
	// Home is the namespace of the objects of the instance, whose creation may not have been saved. Only the removal of the instance clears it.
	Home string `json:"namespace,omitempty"`
	// Namespace and Resource are the namespace and name of the Kyma resource.
	Namespace string `json:"kymaNamespace,omitempty"`
	Resource  string `json:"kymaName,omitempty"`
	// Template is the text of the Kyma resource of a new runtime.
	Template string `json:"kymaTemplate,omitempty"`
	// SecretNamespace and Secret are the namespace and name of the Secret with the kubeconfig.
	SecretNamespace string `json:"secretNamespace,omitempty"`
	Secret          string `json:"secretName,omitempty"`
}

// noRuntime is the message of an update or upgrade that is skipped.
const noRuntime = "the instance has no runtime: it is suspended"

type shared struct {
	cfg      Config
	kube     *kube.Client
	versions *kyma.Versions
}

// Steps creates the steps of the worker.
func Steps(cfg Config, deps extclient.Deps) ([]worker.Step, error) {
	client, err := cfg.Open(deps)
	s := &shared{cfg: cfg, kube: client, versions: kyma.NewVersions(client, cfg.ConfigNamespace, cfg.DefaultVersion)}
	return []worker.Step{
		worker.NewStep("Init_Kyma_Template", component, s.initKymaTemplate, worker.Description{
			Summary: "Reads the template of the Kyma resource for the plan and the version of Kyma.",
			Calls:   worker.Calls(system, "list configmaps"),
			Details: []string{"kymaTemplate", "namespace"},
		}),
		worker.NewStep("Sync_Kubeconfig", component, s.syncKubeconfig, worker.Description{
			Summary: "Stores the kubeconfig of the runtime in a Secret of the control plane for the Lifecycle Manager.",
			Calls: worker.Calls(system,
				"list configmaps", "list secrets", "delete secrets", "get secrets", "create secrets", "patch secrets"),
			Details: []string{"secretNamespace", "secretName"},
		}),
		worker.NewStep("Apply_Kyma", component, s.applyKyma, worker.Description{
			Summary: "Creates the Kyma resource of the runtime from its template, or updates the labels of an existing one.",
			Calls:   worker.Calls(system, "list configmaps", "list kymas", "delete kymas", "get kymas", "create kymas", "patch kymas"),
			Details: []string{"kymaNamespace", "kymaName"},
		}),
		worker.NewStep("Delete_Kyma_Resource", component, s.deleteKymaResource, worker.Description{
			Summary: "Deletes the Kyma resource of the instance.",
			Calls:   worker.Calls(system, "list kymas", "get kymas", "delete kymas"),
		}),
		worker.NewStep("Check_Kyma_Resource_Deleted", component, s.checkKymaResourceDeleted, worker.Description{
			Summary: "Waits until the Lifecycle Manager has deleted the Kyma resource with its modules.",
			Calls:   worker.Calls(system, "list kymas", "get kymas"),
			Details: []string{"kymaNamespace", "kymaName"},
		}),
		worker.NewStep("Delete_Kubeconfig", component, s.deleteKubeconfig, worker.Description{
			Summary: "Deletes the Secret with the kubeconfig of the runtime from the control plane.",
			Calls:   worker.Calls(system, "list secrets", "get secrets", "delete secrets"),
			Details: []string{"secretNamespace", "secretName", "kymaTemplate"},
		}),
	}, err
}

// read returns the saved details and the runtime id, which is empty if the instance has no runtime.
func read(op worker.Operation) (Details, string, error) {
	var d Details
	var runtime provisioner.Details
	err := errors.Join(op.Details(Name, &d), op.Details(provisioner.Name, &runtime))
	return d, runtime.RuntimeID, err
}

// withoutRuntime skips a step for an instance without a runtime id; in a provisioning it fails the step.
func withoutRuntime(op worker.Operation) (worker.Operation, time.Duration, error) {
	if op.Type != event.Provision {
		return worker.Skip(op, noRuntime)
	}
	return worker.Fail(op, &worker.Error{Component: "keb", Message: "no runtime id is saved: the runtime was not created"})
}
