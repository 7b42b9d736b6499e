package catalog

// The service offering (docs/contracts/plans.md#service).
const (
	ServiceID   = "47c9dcbf-ff30-448e-ab36-d3bad66ba281"
	ServiceName = "kymaruntime"
)

// Names of the plans (docs/contracts/plans.md#plans).
const (
	Azure      = "azure"
	AzureLite  = "azure_lite"
	AWS        = "aws"
	GCP        = "gcp"
	OpenStack  = "openstack"
	Trial      = "trial"
	Free       = "free"
	OwnCluster = "own_cluster"
	Preview    = "preview"
)

// Names of providers, as they appear in event.Runtime.
const (
	ProviderAzure     = "azure"
	ProviderAWS       = "aws"
	ProviderGCP       = "gcp"
	ProviderOpenStack = "openstack"
	// ProviderCustom stands for the customer's own cluster.
	ProviderCustom = "custom"
)

// LicenceType is the licence type of the clusters of a plan. Most plans have none. It is unrelated to the license type in the
// context of an order (docs/contracts/runtime-provisioner.md#provisionruntime).
func LicenceType(plan string) string {
	if plan == AzureLite || plan == Trial {
		return "TestDevelopmentAndDemo"
	}
	return ""
}

// Plan identifies a plan.
type Plan struct {
	ID, Name string
}

// spec holds the fixed properties of a plan. Zero fields mean that the plan has no such parameter.
type spec struct {
	Plan
	display, description string
	// provider is empty if it depends on the platform region or the configuration.
	provider string
	// createMachines are the machine types of the create form; updateMachines are those that an update accepts.
	createMachines, updateMachines []string
	// nodes holds the limits and defaults of autoScalerMin and autoScalerMax. A plan with a fixed size has no such parameters.
	nodes nodes
	// volumeGB is the size of a worker's disk; 0 means that the plan has none.
	volumeGB int
	free     bool
}

type nodes struct {
	lowest, highest        int
	defaultMin, defaultMax int
	fixed                  bool
}

var (
	awsM5Machines  = []string{"m5.xlarge", "m5.2xlarge", "m5.4xlarge", "m5.8xlarge", "m5.12xlarge"}
	awsM6iMachines = []string{"m6i.xlarge", "m6i.2xlarge", "m6i.4xlarge", "m6i.8xlarge", "m6i.12xlarge"}
	awsMachines    = append(append([]string{}, awsM5Machines...), awsM6iMachines...)
	gcpMachines    = []string{"n2-standard-4", "n2-standard-8", "n2-standard-16", "n2-standard-32", "n2-standard-48"}
	azureMachines  = []string{
		"Standard_D4_v3", "Standard_D8_v3", "Standard_D16_v3", "Standard_D32_v3", "Standard_D48_v3", "Standard_D64_v3",
	}
	azureLiteMachines = []string{"Standard_D4_v3"}
	openStackMachines = []string{"g_c4_m16", "g_c8_m32"}
)

var (
	production = nodes{lowest: 3, highest: 80, defaultMin: 3, defaultMax: 20}
	singleNode = nodes{defaultMin: 1, defaultMax: 1, fixed: true}
)

// specs lists the plans of 2023 in the order of the catalog (docs/contracts/plans.md#parameters).
var specs = []spec{
	{
		Plan: Plan{ID: "4deee563-e5ec-4731-b9b1-53b42d855f0c", Name: Azure}, display: "Azure",
		description: "Kyma runtime on Microsoft Azure", provider: ProviderAzure,
		createMachines: azureMachines, updateMachines: azureMachines, nodes: production, volumeGB: 50,
	},
	{
		Plan: Plan{ID: "8cb22518-aa26-44c5-91a0-e669ec9bf443", Name: AzureLite}, display: "Azure Lite",
		description: "Small Kyma runtime on Microsoft Azure for development", provider: ProviderAzure,
		createMachines: azureLiteMachines, updateMachines: azureLiteMachines,
		nodes: nodes{lowest: 2, highest: 40, defaultMin: 2, defaultMax: 10}, volumeGB: 50,
	},
	{
		Plan: Plan{ID: "361c511f-f939-4621-b228-d0fb79a1fe15", Name: AWS}, display: "AWS",
		description: "Kyma runtime on Amazon Web Services", provider: ProviderAWS,
		createMachines: awsM5Machines, updateMachines: awsMachines, nodes: production, volumeGB: 50,
	},
	{
		Plan: Plan{ID: "ca6e5357-707f-4565-bbbd-b3ab732597c6", Name: GCP}, display: "GCP",
		description: "Kyma runtime on Google Cloud", provider: ProviderGCP,
		createMachines: gcpMachines, updateMachines: gcpMachines, nodes: production, volumeGB: 50,
	},
	{
		Plan: Plan{ID: "03b812ac-c991-4528-b5bd-08b303523a63", Name: OpenStack}, display: "OpenStack",
		description: "Kyma runtime on OpenStack", provider: ProviderOpenStack,
		createMachines: openStackMachines, updateMachines: openStackMachines,
		nodes: nodes{lowest: 2, highest: 40, defaultMin: 4, defaultMax: 8},
	},
	{
		Plan: Plan{ID: "7d55d31d-35ae-4438-bf13-6ffdfa107d9f", Name: Trial}, display: "Trial",
		description: "Kyma runtime with one node for trying out, for 14 days", free: true,
		nodes: singleNode, volumeGB: 50,
	},
	{
		Plan: Plan{ID: "b1a5764e-2ea1-4f95-94c0-2b4538b37b55", Name: Free}, display: "Free",
		description: "Kyma runtime with one node, free of charge", free: true,
		nodes: singleNode, volumeGB: 50,
	},
	{
		Plan: Plan{ID: "03e3cb66-a4c6-4c6a-b4b0-5d42224debea", Name: OwnCluster}, display: "Own cluster",
		description: "Kyma on a cluster that you bring along", provider: ProviderCustom,
	},
	{
		Plan: Plan{ID: "5cb3d976-b85c-42ea-a636-79cadda109a9", Name: Preview}, display: "Preview",
		description: "Kyma runtime on Amazon Web Services with what comes next", provider: ProviderAWS,
		createMachines: awsM5Machines, updateMachines: awsMachines, nodes: production, volumeGB: 50,
	},
}

// PlanNames returns the names of all known plans in the order of the catalog.
func PlanNames() []string {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	return names
}

// KnownPlan returns a plan by its id, even if it is disabled: an instance can exist longer than its plan is enabled.
func KnownPlan(id string) (Plan, bool) {
	for _, s := range specs {
		if s.ID == id {
			return s.Plan, true
		}
	}
	return Plan{}, false
}
