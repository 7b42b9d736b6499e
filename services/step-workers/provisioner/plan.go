package provisioner

import "fmt"

// plan is what a plan fixes about its runtimes on one provider (docs/contracts/runtime-provisioner.md#values-of-a-plan).
type plan struct {
	region, machineType, diskType string
	// volumeSizeGB is 0 for a plan whose machines have no volume.
	volumeSizeGB int
	scaleMin     int
	scaleMax     int
	workerCIDR   string
	// nat is the NAT gateway of azure runtimes.
	nat bool
	// purpose is empty for the configured one.
	purpose     string
	licenceType string
	// production plans may have several zones and a failure tolerance of their control plane.
	production bool
}

const (
	cidrLarge = "10.250.0.0/16"
	cidrSmall = "10.250.0.0/19"

	purposeEvaluation = "evaluation"
	// licenceTest is the licence type of clusters that are not paid in full.
	licenceTest = "TestDevelopmentAndDemo"
	planTrial   = "trial"
)

// plans are keyed by plan and provider.
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

// planOf returns what a plan fixes about its runtimes on a provider.
func planOf(name, provider string) (plan, error) {
	p, ok := plans[[2]string{name, provider}]
	if !ok {
		return plan{}, fmt.Errorf("runtime.provider: plan %s has no runtimes of provider %q", name, provider)
	}
	return p, nil
}

// zoneCount is how many zones a runtime gets whose order names none.
func (p plan) zoneCount(cfg Config) int {
	if p.production && cfg.MultiZone {
		return 3
	}
	return 1
}
