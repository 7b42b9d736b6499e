package provisioner

import (
	"fmt"
	"strings"

	"github.com/kyma-project/keb/libs/worker"
)

// plan has the fixed values of a plan on one provider (docs/contracts/runtime-provisioner.md#values-of-a-plan).
type plan struct {
	region, machineType, diskType string
	// volumeSizeGB is 0 for a plan whose machines have no volume.
	volumeSizeGB int
	scaleMin     int
	scaleMax     int
	workerCIDR   string
	// nat enables the NAT gateway of azure runtimes.
	nat bool
	// purpose is empty if the configured one applies.
	purpose     string
	licenceType string
	// maxSurge is 0 if the number of zones applies.
	maxSurge       int
	maxUnavailable int
	// zone is the default zone of orders; empty means a random one.
	zone string
	// production plans may have several zones and a failure tolerance of their control plane.
	production bool
}

const (
	cidrLarge = "10.250.0.0/16"
	cidrSmall = "10.250.0.0/19"

	purposeEvaluation = "evaluation"
	// licenceTest is the licence type of clusters at a reduced price.
	licenceTest = "TestDevelopmentAndDemo"
	planTrial   = "trial"
)

// plans are the plans by name and provider.
var plans = map[[2]string]plan{
	{"azure", "azure"}: {
		region: "eastus", machineType: "Standard_D4_v3", diskType: "Standard_LRS", volumeSizeGB: 50, scaleMin: 3, scaleMax: 20,
		workerCIDR: cidrLarge, nat: true, production: true,
	},
	{"azure_lite", "azure"}: {
		region: "eastus", machineType: "Standard_D4_v3", diskType: "Standard_LRS", volumeSizeGB: 50, scaleMin: 2, scaleMax: 10,
		workerCIDR: cidrSmall, nat: true, licenceType: licenceTest,
	},
	{planTrial, "azure"}: {
		region: "eastus", machineType: "Standard_D4_v3", diskType: "Standard_LRS", volumeSizeGB: 50, scaleMin: 1, scaleMax: 1,
		workerCIDR: cidrSmall, purpose: purposeEvaluation, licenceType: licenceTest,
	},
	{"free", "azure"}: {
		region: "eastus", machineType: "Standard_D4_v3", diskType: "Standard_LRS", volumeSizeGB: 50, scaleMin: 1, scaleMax: 1,
		workerCIDR: cidrSmall, purpose: purposeEvaluation,
	},
	{"aws", "aws"}:     awsPlan,
	{"preview", "aws"}: awsPlan,
	{planTrial, "aws"}: {
		region: "eu-west-1", machineType: "m5.xlarge", diskType: "gp2", volumeSizeGB: 50, scaleMin: 1, scaleMax: 1,
		workerCIDR: cidrSmall, purpose: purposeEvaluation, licenceType: licenceTest,
	},
	{"free", "aws"}: {
		region: "eu-central-1", machineType: "m5.xlarge", diskType: "gp2", volumeSizeGB: 50, scaleMin: 1, scaleMax: 1,
		workerCIDR: cidrSmall, purpose: purposeEvaluation,
	},
	{"gcp", "gcp"}: {
		region: "europe-west3", machineType: "n2-standard-4", diskType: "pd-standard", volumeSizeGB: 50, scaleMin: 3, scaleMax: 20,
		workerCIDR: cidrSmall, production: true,
	},
	{planTrial, "gcp"}: {
		region: "europe-west3", machineType: "n2-standard-4", diskType: "pd-standard", volumeSizeGB: 30, scaleMin: 1, scaleMax: 1,
		workerCIDR: cidrSmall, licenceType: licenceTest,
	},
	{"openstack", "openstack"}: {
		region: "eu-de-2", machineType: "g_c4_m16", scaleMin: 4, scaleMax: 8, workerCIDR: cidrSmall,
	},
}

var awsPlan = plan{
	region: "eu-central-1", machineType: "m5.xlarge", diskType: "gp2", volumeSizeGB: 50, scaleMin: 3, scaleMax: 20,
	workerCIDR: cidrLarge, production: true,
}

// plansWithKyma are the plans with Kyma (docs/contracts/runtime-provisioner.md#kyma-1). Values that this page does not define are those
// without Kyma.
var plansWithKyma = map[[2]string]plan{
	{"azure", "azure"}: {
		region: "westeurope", machineType: "Standard_D8_v3", diskType: "Standard_LRS", volumeSizeGB: 50, scaleMin: 3, scaleMax: 10,
		workerCIDR: cidrSmall, zone: "1", maxSurge: 4, maxUnavailable: 1,
	},
	{"azure_lite", "azure"}: {
		region: "westeurope", machineType: "Standard_D4_v3", diskType: "Standard_LRS", volumeSizeGB: 50, scaleMin: 3, scaleMax: 4,
		workerCIDR: cidrSmall, zone: "1", maxSurge: 4, maxUnavailable: 1, licenceType: licenceTest,
	},
	{planTrial, "azure"}: {
		region: "westeurope", machineType: "Standard_D4_v3", diskType: "Standard_LRS", volumeSizeGB: 50, scaleMin: 2, scaleMax: 2,
		workerCIDR: cidrSmall, zone: "1", maxSurge: 1, maxUnavailable: 1, purpose: purposeEvaluation, licenceType: licenceTest,
	},
	{"gcp", "gcp"}: {
		region: "europe-west4", machineType: "n1-standard-4", diskType: "pd-standard", volumeSizeGB: 30, scaleMin: 3, scaleMax: 4,
		workerCIDR: cidrSmall, maxSurge: 4, maxUnavailable: 1,
	},
	{planTrial, "gcp"}: {
		region: "europe-west4", machineType: "n1-standard-4", diskType: "pd-standard", volumeSizeGB: 30, scaleMin: 2, scaleMax: 2,
		workerCIDR: cidrSmall, maxSurge: 1, maxUnavailable: 1, licenceType: licenceTest,
	},
}

// planOf returns the fixed values of op's plan on op's provider.
func planOf(of map[[2]string]plan, op worker.Operation) (plan, error) {
	p, ok := of[[2]string{op.Plan.Name, strings.ToLower(op.Runtime.Provider)}]
	if !ok {
		return plan{}, fmt.Errorf("runtime.provider: plan %s has no runtimes of provider %q", op.Plan.Name, op.Runtime.Provider)
	}
	return p, nil
}

// zoneCount returns the number of zones of a runtime whose order contains none.
func (p plan) zoneCount(cfg Config) int {
	if p.production && cfg.MultiZone {
		return 3
	}
	return 1
}
