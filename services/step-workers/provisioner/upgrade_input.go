package provisioner

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kyma-project/keb/libs/worker"
)

// UpgradeInput is the argument of upgradeShoot (docs/contracts/runtime-provisioner.md#upgradeshoot). An absent member changes nothing,
// except Administrators: the list replaces that of the cluster, so an absent list removes all administrators.
type UpgradeInput struct {
	GardenerConfig GardenerUpgrade `json:"gardenerConfig"`
	Administrators []string        `json:"administrators,omitempty"`
}

// GardenerUpgrade is the part of a GardenerConfig that updates and upgrades can change.
type GardenerUpgrade struct {
	KubernetesVersion        string `json:"kubernetesVersion,omitempty"`
	MachineType              string `json:"machineType,omitempty"`
	MachineImage             string `json:"machineImage,omitempty"`
	MachineImageVersion      string `json:"machineImageVersion,omitempty"`
	AutoScalerMin            *int   `json:"autoScalerMin,omitempty"`
	AutoScalerMax            *int   `json:"autoScalerMax,omitempty"`
	MaxSurge                 *int   `json:"maxSurge,omitempty"`
	MaxUnavailable           *int   `json:"maxUnavailable,omitempty"`
	AutoUpdateKubernetes     *bool  `json:"enableKubernetesVersionAutoUpdate,omitempty"`
	AutoUpdateMachineImage   *bool  `json:"enableMachineImageVersionAutoUpdate,omitempty"`
	NetworkingFilterDisabled bool   `json:"shootNetworkingFilterDisabled"`
	OIDC                     *OIDC  `json:"oidcConfig"`
}

// newUpgradeInput returns the input of every update and upgrade: administrators, logins and the networking filter.
func newUpgradeInput(op worker.Operation, p parameters) UpgradeInput {
	return UpgradeInput{
		GardenerConfig: GardenerUpgrade{
			NetworkingFilterDisabled: networkingFilterDisabled(op.Context.LicenseType), OIDC: p.OIDC,
		},
		Administrators: p.administrators(op),
	}
}

// updateInput adds the changed parameters of an update.
func updateInput(op worker.Operation, p parameters) (UpgradeInput, error) {
	input := newUpgradeInput(op, p)
	if op.Update == nil || len(op.Update.Parameters) == 0 {
		return input, nil
	}
	var c struct {
		MachineType    string `json:"machineType"`
		AutoScalerMin  *int   `json:"autoScalerMin"`
		AutoScalerMax  *int   `json:"autoScalerMax"`
		MaxSurge       *int   `json:"maxSurge"`
		MaxUnavailable *int   `json:"maxUnavailable"`
	}
	if err := json.Unmarshal(op.Update.Parameters, &c); err != nil {
		return input, fmt.Errorf("update.parameters: %w", err)
	}
	g := &input.GardenerConfig
	g.MachineType = c.MachineType
	g.AutoScalerMin, g.AutoScalerMax = c.AutoScalerMin, c.AutoScalerMax
	g.MaxSurge, g.MaxUnavailable = c.MaxSurge, c.MaxUnavailable
	return input, nil
}

// networkingFilterDisabled reports whether a license type disables the networking filter of the cluster
// (docs/contracts/runtime-provisioner.md#licence-type-and-network-filter).
func networkingFilterDisabled(license string) bool {
	return slices.Contains([]string{"CUSTOMER", "PARTNER", "TRIAL"}, license)
}

// clusterInput adds the target versions of a cluster upgrade: those of its orchestration, otherwise the configured ones. An image and its
// version come from the same source, because they must match.
func clusterInput(cfg Config, op worker.Operation, p parameters) (UpgradeInput, error) {
	input := newUpgradeInput(op, p)
	of, err := planOf(plans, op)
	if err != nil {
		return input, err
	}
	g := &input.GardenerConfig
	g.KubernetesVersion, g.MachineImage, g.MachineImageVersion = cfg.KubernetesVersion, cfg.MachineImage, cfg.MachineImageVersion
	g.AutoUpdateKubernetes, g.AutoUpdateMachineImage = new(cfg.KubernetesAutoUpdate), new(cfg.MachineImageAutoUpdate)
	g.MaxSurge, g.MaxUnavailable = new(p.maxSurge(cfg, of)), new(p.maxUnavailable(of))
	if op.Plan.Name == planTrial && cfg.TrialNodes > 0 {
		g.AutoScalerMin, g.AutoScalerMax = new(cfg.TrialNodes), new(cfg.TrialNodes)
	}
	if u := op.Upgrade; u != nil {
		if u.KubernetesVersion != "" {
			g.KubernetesVersion = u.KubernetesVersion
		}
		if u.MachineImage != "" {
			g.MachineImage, g.MachineImageVersion = u.MachineImage, u.MachineImageVersion
		} else if u.MachineImageVersion != "" {
			g.MachineImageVersion = u.MachineImageVersion
		}
	}
	return input, nil
}
