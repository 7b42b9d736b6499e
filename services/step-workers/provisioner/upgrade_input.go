package provisioner

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kyma-project/keb/libs/worker"
)

// UpgradeInput is the argument of upgradeShoot (facts/keb.md 5.4). What is absent stays as it is.
type UpgradeInput struct {
	GardenerConfig GardenerUpgrade `json:"gardenerConfig"`
	Administrators []string        `json:"administrators,omitempty"`
}

// GardenerUpgrade is what of a GardenerConfig can be changed by updates and upgrades.
type GardenerUpgrade struct {
	KubernetesVersion      string `json:"kubernetesVersion,omitempty"`
	MachineType            string `json:"machineType,omitempty"`
	MachineImage           string `json:"machineImage,omitempty"`
	MachineImageVersion    string `json:"machineImageVersion,omitempty"`
	AutoScalerMin          *int   `json:"autoScalerMin,omitempty"`
	AutoScalerMax          *int   `json:"autoScalerMax,omitempty"`
	MaxSurge               *int   `json:"maxSurge,omitempty"`
	MaxUnavailable         *int   `json:"maxUnavailable,omitempty"`
	AutoUpdateKubernetes   *bool  `json:"enableKubernetesVersionAutoUpdate,omitempty"`
	AutoUpdateMachineImage *bool  `json:"enableMachineImageVersionAutoUpdate,omitempty"`
	NetworkingFilter       *bool  `json:"shootNetworkingFilterDisabled,omitempty"`
	OIDC                   *OIDC  `json:"oidcConfig,omitempty"`
}

// newUpdateInput is what an update changes of the cluster: nothing but what facts/keb.md 4.5 lists, and of that only
// what the request has changed. changes is false when that is nothing.
func newUpdateInput(op worker.Operation) (input UpgradeInput, changes bool, err error) {
	if op.Update == nil {
		return input, false, nil
	}
	var c struct {
		MachineType    string          `json:"machineType"`
		AutoScalerMin  *int            `json:"autoScalerMin"`
		AutoScalerMax  *int            `json:"autoScalerMax"`
		MaxSurge       *int            `json:"maxSurge"`
		MaxUnavailable *int            `json:"maxUnavailable"`
		Administrators []string        `json:"administrators"`
		OIDC           json.RawMessage `json:"oidc"`
	}
	if len(op.Update.Parameters) > 0 {
		if err := json.Unmarshal(op.Update.Parameters, &c); err != nil {
			return input, false, fmt.Errorf("update.parameters: %w", err)
		}
	}
	input.Administrators = c.Administrators
	g := &input.GardenerConfig
	g.MachineType = c.MachineType
	g.AutoScalerMin, g.AutoScalerMax = c.AutoScalerMin, c.AutoScalerMax
	g.MaxSurge, g.MaxUnavailable = c.MaxSurge, c.MaxUnavailable
	if len(c.OIDC) > 0 && string(c.OIDC) != "null" {
		// The Runtime Provisioner takes only whole ones.
		var p parameters
		if err := op.Parameters(&p); err != nil {
			return input, false, err
		}
		g.OIDC = p.OIDC
	}
	if op.Update.LicenseType {
		g.NetworkingFilter = new(networkingFilterDisabled(op.Context.LicenseType))
	}
	changes = *g != (GardenerUpgrade{}) || len(input.Administrators) > 0
	return input, changes, nil
}

// networkingFilterDisabled says what a license type means for the network of the cluster (facts/keb.md 1.7).
func networkingFilterDisabled(license string) bool {
	return slices.Contains([]string{"CUSTOMER", "PARTNER", "TRIAL"}, license)
}

// newUpgradeInput is what an upgrade of the cluster brings: the versions that its orchestration demands, else the
// configured ones. An image and its version come from one place, as they belong together.
func newUpgradeInput(cfg Config, op worker.Operation) UpgradeInput {
	g := GardenerUpgrade{
		KubernetesVersion: cfg.KubernetesVersion, MachineImage: cfg.MachineImage, MachineImageVersion: cfg.MachineImageVersion,
		AutoUpdateKubernetes: new(cfg.KubernetesAutoUpdate), AutoUpdateMachineImage: new(cfg.MachineImageAutoUpdate),
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
	return UpgradeInput{GardenerConfig: g}
}
