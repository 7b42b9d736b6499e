package provisioner

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
)

// zoneLetters are the zones by region. Any other region has only the zone "a".
var zoneLetters = map[string]map[string]string{
	"aws": {
		"eu-central-1": "abc", "eu-west-2": "abc", "ca-central-1": "abd", "sa-east-1": "abc", "us-east-1": "abcdf", "us-west-1": "ab",
		"ap-northeast-1": "acd", "ap-northeast-2": "abc", "ap-south-1": "abc", "ap-southeast-1": "abc", "ap-southeast-2": "abc",
	},
	"openstack": {"eu-de-1": "abd", "eu-de-2": "abd", "ap-sa-1": "a"},
}

// maxZones is the maximum number of zones in the address plan of a provider.
var maxZones = map[string]int{"aws": 4, "azure": 3, "gcp": 3, "openstack": 1}

// zonesOf returns all zones of a region.
func zonesOf(provider, region string) []string {
	letters, separator := zoneLetters[provider][region], ""
	switch provider {
	case "azure":
		return []string{"1", "2", "3"}
	case "gcp":
		letters, separator = "abc", "-"
	}
	if letters == "" {
		letters = "a"
	}
	var zones []string
	for _, letter := range letters {
		zones = append(zones, region+separator+string(letter))
	}
	return zones
}

// pickZones returns up to n random zones of a region. The choice depends only on the instance and the region, so an order that is repeated
// after a lost answer has the same zones.
func pickZones(instanceID, provider, region string, n int) []string {
	all := zonesOf(provider, region)
	random := rand.New(rand.NewChaCha8(sha256.Sum256([]byte(instanceID + "/" + region)))) // spreads load, keeps no secret
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

// network is the network of a runtime: the providerSpecificConfig of an order.
type network struct {
	plan     plan
	planName string
	provider string
	zones    []string
	// deprecated are the zones in azureConfig.zones.
	deprecated   []string
	floatingPool string
}

// newNetwork uses the zones of the order, or picks some. Its error contains the invalid parameter.
func newNetwork(cfg Config, p plan, planName, provider, region, instanceID string, ordered []string) (network, error) {
	n := network{plan: p, planName: planName, provider: provider, floatingPool: cfg.FloatingPool}
	if provider == "azure" {
		for _, zone := range ordered {
			if !slices.Contains(zonesOf(provider, region), zone) {
				return n, fmt.Errorf("parameters.zones: %q is not allowed, want 1, 2 or 3", zone)
			}
		}
	}
	if planName == "free" && provider == "azure" {
		n.deprecated, ordered = ordered, nil
	}
	limit := maxZones[provider]
	if p.workerCIDR == cidrSmall && provider != "gcp" && p.zone == "" {
		limit = 1
	}
	if len(ordered) > limit {
		return n, fmt.Errorf("parameters.zones: %d zones are not allowed, plan %s has at most %d", len(ordered), planName, limit)
	}
	n.zones = ordered
	switch {
	case len(n.zones) > 0:
	case p.zone != "":
		n.zones = []string{p.zone}
	default:
		n.zones = pickZones(instanceID, provider, region, p.zoneCount(cfg))
	}
	return n, nil
}

// configWithKyma returns the config of 2020: Azure has zones by name, without their own addresses, and no NAT gateway.
func (n network) configWithKyma() (map[string]any, error) {
	if n.provider == "azure" {
		return map[string]any{"azureConfig": map[string]any{"vnetCidr": n.plan.workerCIDR, "zones": n.zones}}, nil
	}
	return n.config()
}

// config returns one member, with the address plan of docs/contracts/runtime-provisioner.md#values-of-a-plan.
func (n network) config() (map[string]any, error) {
	switch n.provider {
	case "aws":
		list := make([]map[string]any, len(n.zones))
		for i, zone := range n.zones {
			list[i] = map[string]any{
				"name":         zone,
				"workerCidr":   fmt.Sprintf("10.250.%d.0/19", 64*i),
				"publicCidr":   fmt.Sprintf("10.250.%d.0/20", 64*i+32),
				"internalCidr": fmt.Sprintf("10.250.%d.0/20", 64*i+48),
			}
		}
		return map[string]any{"awsConfig": map[string]any{"vpcCidr": cidrLarge, "awsZones": list}}, nil
	case "azure":
		list := make([]map[string]any, len(n.zones))
		for i, zone := range n.zones {
			number, err := strconv.Atoi(zone)
			if err != nil {
				return nil, fmt.Errorf("parameters.zones: %q is not a number", zone)
			}
			list[i] = map[string]any{"name": number, "cidr": fmt.Sprintf("10.250.%d.0/19", 32*i)}
		}
		azure := map[string]any{"vnetCidr": n.plan.workerCIDR, "azureZones": list, "enableNatGateway": n.plan.nat}
		if len(n.deprecated) > 0 {
			azure["zones"] = n.deprecated
		}
		return map[string]any{"azureConfig": azure}, nil
	case "gcp":
		return map[string]any{"gcpConfig": map[string]any{"zones": n.zones}}, nil
	case "openstack":
		return map[string]any{"openStackConfig": map[string]any{
			"zones": n.zones, "floatingPoolName": n.floatingPool,
			"cloudProfileName": "converged-cloud-cp", "loadBalancerProvider": "f5",
		}}, nil
	}
	return nil, fmt.Errorf("runtime.provider: %q is unknown, want aws, azure, gcp or openstack", n.provider)
}
