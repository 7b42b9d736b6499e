package catalog

import "strings"

// Platform regions whose runtimes must stay in regions with EU access (docs/contracts/plans.md#eu-access).
var euAccessRegions = map[string]bool{"cf-eu11": true, "cf-ch20": true}

// EUAccess reports whether orders from a platform region are restricted to EU access.
func EUAccess(platformRegion string) bool { return euAccessRegions[platformRegion] }

// platformProvider derives the provider of a platform region from the first digit in its name: 1 is AWS, 2 is
// Azure (docs/contracts/plans.md#regions). For any other name it returns AWS, so that plan free stays available.
func platformProvider(platformRegion string) string {
	if i := strings.IndexAny(platformRegion, "0123456789"); i >= 0 && platformRegion[i] == '2' {
		return ProviderAzure
	}
	return ProviderAWS
}

var regions = map[string][]string{
	ProviderAzure: {
		"eastus", "centralus", "westus2", "uksouth", "northeurope", "westeurope", "japaneast", "southeastasia",
	},
	ProviderAWS: {
		"eu-central-1", "eu-west-2", "ca-central-1", "sa-east-1", "us-east-1", "us-west-1", "ap-northeast-1",
		"ap-northeast-2", "ap-south-1", "ap-southeast-1", "ap-southeast-2",
	},
	ProviderGCP:       {"europe-west3", "asia-south1", "us-central1"},
	ProviderOpenStack: {"eu-de-1", "eu-de-2", "ap-sa-1"},
}

var euRegions = map[string][]string{
	ProviderAzure: {"switzerlandnorth"},
	ProviderAWS:   {"eu-central-1"},
}

// regionsOf lists the regions of a provider. The first is not always the default.
func regionsOf(provider string, eu bool) []string {
	if eu {
		if r, ok := euRegions[provider]; ok {
			return r
		}
	}
	return regions[provider]
}

// defaultRegions are the regions of orders that name no region (docs/contracts/plans.md#regions).
var defaultRegions = map[string]string{
	ProviderAzure: "eastus", ProviderAWS: "eu-central-1", ProviderGCP: "europe-west3", ProviderOpenStack: "eu-de-2",
}

// defaultRegion returns the default region of a plan. EU access does not apply to plan free.
func defaultRegion(plan, provider string, eu bool) string {
	if r, ok := euRegions[provider]; ok && eu && plan != Free {
		return r[0]
	}
	return defaultRegions[provider]
}

// Abstract regions of plan trial.
var trialRegionNames = []string{"europe", "us", "asia"}

var trialRegions = map[string]map[string]string{
	"europe": {ProviderAWS: "eu-west-1", ProviderAzure: "westeurope", ProviderGCP: "europe-west3"},
	"us":     {ProviderAWS: "us-east-1", ProviderAzure: "eastus", ProviderGCP: "us-central1"},
	"asia":   {ProviderAWS: "ap-southeast-1", ProviderAzure: "southeastasia", ProviderGCP: "asia-south1"},
}

var trialRegionOfPlatform = map[string]string{"cf-eu10": "europe", "cf-us10": "us", "cf-apj21": "asia"}

// trialDefaultRegions apply to platform regions without an abstract region.
var trialDefaultRegions = map[string]string{
	ProviderAzure: "eastus", ProviderAWS: "eu-west-1", ProviderGCP: "europe-west3",
}

// trialRegion returns the provider's region for an abstract region. Without one it uses the platform region.
func trialRegion(abstract, platformRegion, provider string, eu bool) string {
	if eu {
		if r, ok := euRegions[provider]; ok {
			return r[0]
		}
	}
	if abstract == "" {
		abstract = trialRegionOfPlatform[platformRegion]
	}
	if abstract == "" {
		return trialDefaultRegions[provider]
	}
	return trialRegions[abstract][provider]
}

var trialProviders = []string{ProviderAzure, ProviderAWS, ProviderGCP}

// defaultMachine is the machine type of orders that name none, and of plans without a choice.
var defaultMachine = map[string]string{
	ProviderAzure: "Standard_D4_v3", ProviderAWS: "m5.xlarge", ProviderGCP: "n2-standard-4", ProviderOpenStack: "g_c4_m16",
}
