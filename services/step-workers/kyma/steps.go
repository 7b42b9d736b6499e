package kyma

import (
	"errors"
	"slices"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Name is the name of the worker and of its details.
const Name = "kyma"

// system is the name of the control plane in descriptions.
const system = "control-plane"

const component = "k8s client - keb"

// Steps creates the steps of the worker.
func Steps(cfg Config, deps extclient.Deps) ([]worker.Step, error) {
	client, err := cfg.Open(deps)
	published, errArtifacts := newArtifacts(cfg.ArtifactsURL, deps)
	d := decider{
		cfg: cfg, store: &store{kube: client, namespace: cfg.Namespace}, artifacts: published,
		versions: NewVersions(client, cfg.Namespace, cfg.DefaultVersion),
	}
	return []worker.Step{
		worker.NewStep("Provision_Initialization", component, d.provisionInitialization, describe(
			"Selects the version of Kyma and reads its components. The version is that of the order, otherwise that of the account, otherwise the configured one.")),
		worker.NewStep("Update_Init_Kyma_Version", component, d.updateInitKymaVersion, describe(
			"Finds the runtime's version of Kyma, which an update does not change, and reads its components.")),
		worker.NewStep("Upgrade_Init_Kyma_Version", component, d.upgradeInitKymaVersion, describe(
			"Selects the target version of Kyma and reads its components. The version is that of the orchestration, otherwise that of the account, otherwise the configured one.")),
		worker.NewStep("Overrides_From_Secrets_And_Config_Step", component, d.overrides, worker.Description{
			Summary:     "Collects the overrides of the operators for the plan and the version of Kyma.",
			Calls:       worker.Calls(system, "list secrets", "list configmaps"),
			StageMemory: []string{"overrides:*"},
		}),
	}, errors.Join(err, errArtifacts)
}

// describe returns the description of a step that selects a version.
func describe(summary string) worker.Description {
	return worker.Description{
		Summary: summary,
		Calls: slices.Concat(worker.Calls(system, "get configmaps"),
			worker.Calls(artifactsSystem, "GET "+releasedComponents, "GET "+developmentComponents), worker.Calls(system, "list configmaps")),
		Details: []string{"version", "origin", "components"},
	}
}
