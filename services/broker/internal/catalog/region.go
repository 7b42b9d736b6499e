package catalog

import "strings"

// Platform regions whose runtimes must stay in regions with EU access (facts/keb.md 2.3).
var euAccessRegions = map[string]bool{"cf-eu11": true, "cf-ch20": true}

// EUAccess reports whether orders from a platform region are restricted to EU access.
func EUAccess(platformRegion string) bool { return euAccessRegions[platformRegion] }

// platformProvider derives the provider behind a platform region from the first digit in its name: 1 is AWS, 2 is
// Azure (facts/keb.md 1.1). Where there is neither, it is AWS, so that plan free stays available.
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

// regionsOf lists where a provider's runtimes may be; the first is not always the default.
func regionsOf(provider string, eu bool) []string {
	if eu {
		if r, ok := euRegions[provider]; ok {
			return r
		}
	}
	return regions[provider]
}

// defaultRegions is where a runtime goes when the order names no region (facts/contracts.md 1.3).
var defaultRegions = map[string]string{
	ProviderAzure: "eastus", ProviderAWS: "eu-central-1", ProviderGCP: "europe-west3", ProviderOpenStack: "eu-de-2",
}

// defaultRegion knows that the plan free does not follow EU access.
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

// trialDefaultRegions are for platform regions that stand for no abstract region.
var trialDefaultRegions = map[string]string{
	ProviderAzure: "eastus", ProviderAWS: "eu-west-1", ProviderGCP: "europe-west3",
}

// trialRegion maps an abstract region, or the platform region when there is none, to the provider's region.
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

// defaultMachine is the machine of a runtime whose order names none; it also serves the plans that offer no choice.
var defaultMachine = map[string]string{
	ProviderAzure: "Standard_D4_v3", ProviderAWS: "m5.xlarge", ProviderGCP: "n2-standard-4", ProviderOpenStack: "g_c4_m16",
}
