package provisioner

import (
	"fmt"
	"strconv"
)

// providerConfig is the providerSpecificConfig: exactly one member, with the address plan of facts/keb.md 2.4.
func providerConfig(cfg Config, provider string, zones []string) map[string]any {
	switch provider {
	case "aws":
		list := make([]map[string]any, len(zones))
		for i, zone := range zones {
			list[i] = map[string]any{
				"name":         zone,
				"workerCidr":   fmt.Sprintf("10.250.%d.0/19", 64*i),
				"publicCidr":   fmt.Sprintf("10.250.%d.0/20", 64*i+32),
				"internalCidr": fmt.Sprintf("10.250.%d.0/20", 64*i+48),
			}
		}
		return map[string]any{"awsConfig": map[string]any{"vpcCidr": workerCIDR, "awsZones": list}}
	case "azure":
		list := make([]map[string]any, len(zones))
		for i, zone := range zones {
			number, err := strconv.Atoi(zone)
			if err != nil {
				number = i + 1
			}
			list[i] = map[string]any{"name": number, "cidr": fmt.Sprintf("10.250.%d.0/19", 32*i)}
		}
		return map[string]any{"azureConfig": map[string]any{
			"vnetCidr": workerCIDR, "azureZones": list, "enableNatGateway": true,
		}}
	case "gcp":
		return map[string]any{"gcpConfig": map[string]any{"zones": zones}}
	}
	return map[string]any{"openStackConfig": map[string]any{
		"zones": zones, "floatingPoolName": cfg.FloatingPool,
		"cloudProfileName": "converged-cloud-cp", "loadBalancerProvider": "f5",
	}}
}
