package catalog

import (
	"strconv"
)

const draft04 = "http://json-schema.org/draft-04/schema#"

const namePattern = "^[a-zA-Z0-9-]*$"

// shootPattern allows the names that are valid as a Kubernetes label: the Kyma resource gets the name of the shoot as one.
const shootPattern = "^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$"

// maxDomain is the maximum length of a DNS name.
const maxDomain = 253

// object is a JSON object under construction. It marshals with sorted keys, so equal schemas have equal bytes.
type object = map[string]any

// controls is the order of the parameters in a form (docs/contracts/plans.md#parameters).
var controls = []string{
	"name", "kubeconfig", "shootName", "shootDomain", "region", "machineType", "autoScalerMin", "autoScalerMax", "oidc",
	"administrators",
}

// createSchema is the published schema of an order.
func createSchema(s spec, provider string, eu, additional bool) object {
	p := object{
		"name": object{
			"type": "string", "title": "Cluster name", "pattern": namePattern, "minLength": 1, "maxLength": 64,
			"_BTPdefaultTemplate": object{"elements": []string{"saSubdomain"}},
		},
	}
	required := []string{"name"}
	switch s.Name {
	case Trial:
	case Free: // EU access does not apply, see defaultRegion
		p["region"] = regionSchema(provider, false)
	case OwnCluster:
		ownClusterProperties(p)
		required = []string{"name", "kubeconfig", "shootName", "shootDomain"}
	default:
		p["region"] = regionSchema(provider, eu)
		p["machineType"] = machineSchema(s.createMachines)
		p["autoScalerMin"] = nodesSchema("Minimum number of nodes", s.nodes, s.nodes.defaultMin)
		p["autoScalerMax"] = nodesSchema("Maximum number of nodes", s.nodes, s.nodes.defaultMax)
	}
	if additional {
		additionalProperties(p)
	}
	return schema(p, required)
}

// updateSchema is the published schema of an update. It has no required members and no defaults.
func updateSchema(s spec, additional bool) object {
	p := object{}
	switch s.Name {
	case Trial, Free:
	case OwnCluster:
		p["kubeconfig"] = kubeconfigSchema()
	default:
		p["machineType"] = machineSchema(s.updateMachines)
		for _, name := range []string{"autoScalerMin", "autoScalerMax"} {
			p[name] = object{"type": "integer", "minimum": s.nodes.lowest, "maximum": s.nodes.highest}
		}
	}
	if additional {
		additionalProperties(p)
		// An update keeps the members that it omits.
		oidc, _ := p["oidc"].(object)
		delete(oidc, "required")
		administrators, _ := p["administrators"].(object)
		administrators["minItems"] = 1
	}
	return schema(p, nil)
}

// changeSchema validates an update: it is the published schema with the additionally accepted members.
func changeSchema(s spec) object {
	o := updateSchema(s, true)
	p, _ := o["properties"].(object)
	for _, name := range []string{"maxSurge", "maxUnavailable"} {
		p[name] = countSchema()
	}
	return o
}

func schema(properties object, required []string) object {
	order := make([]string, 0, len(properties))
	for _, name := range controls {
		if _, ok := properties[name]; ok {
			order = append(order, name)
		}
	}
	o := object{
		"$schema": draft04, "type": "object", "properties": properties,
		"_show_form_view": true, "_controlsOrder": order,
	}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

func regionSchema(provider string, eu bool) object {
	return object{"type": "string", "title": "Region", "minLength": 1, "enum": regionsOf(provider, eu)}
}

func machineSchema(machines []string) object {
	display := object{}
	for _, m := range machines {
		display[m] = m + machineSizes[m]
	}
	return object{
		"type": "string", "title": "Machine type", "minLength": 1, "enum": machines, "_enumDisplayName": display,
	}
}

func nodesSchema(title string, n nodes, preset int) object {
	return object{
		"type": "integer", "title": title, "minimum": n.lowest, "maximum": n.highest, "default": preset,
		"description": "From " + strconv.Itoa(n.lowest) + " to " + strconv.Itoa(n.highest),
	}
}

func ownClusterProperties(p object) {
	p["kubeconfig"] = object{"type": "string", "title": "Kubeconfig, base64-encoded", "minLength": 1}
	p["shootName"] = object{"type": "string", "title": "Shoot name", "pattern": shootPattern, "minLength": 1}
	p["shootDomain"] = object{"type": "string", "title": "Shoot domain", "pattern": `^[a-zA-Z0-9-\.]*$`, "minLength": 1, "maxLength": maxDomain}
}

func kubeconfigSchema() object {
	return object{"type": "string", "title": "Kubeconfig, base64-encoded", "minLength": 1}
}

func countSchema() object { return object{"type": "integer", "minimum": 0, "maximum": 1000} }

func additionalProperties(p object) {
	text := object{"type": "string"}
	p["oidc"] = object{
		"type": "object", "title": "OpenID Connect", "required": []string{"clientID", "issuerURL"},
		"properties": object{
			"clientID": text, "issuerURL": text, "groupsClaim": text, "usernameClaim": text, "usernamePrefix": text,
			"signingAlgs": object{"type": "array", "items": object{"type": "string"}},
		},
	}
	p["administrators"] = object{"type": "array", "title": "Administrators", "items": object{"type": "string", "minLength": 1}}
}

// orderSchema validates an order: it is the published schema with the additionally accepted members (docs/contracts/plans.md#parameters).
// Validating their types protects the workers.
func orderSchema(s spec, provider string, eu bool) object {
	o := createSchema(s, provider, eu, true)
	p, _ := o["properties"].(object)
	hidden := object{
		"volumeSizeGb":     object{"type": "integer", "minimum": 1, "maximum": 65536},
		"maxSurge":         countSchema(),
		"maxUnavailable":   countSchema(),
		"purpose":          object{"type": "string", "enum": []string{"evaluation", "testing", "development", "production"}},
		"zones":            object{"type": "array", "minItems": 1, "items": object{"type": "string", "minLength": 1}},
		"kymaVersion":      object{"type": "string"},
		"overridesVersion": object{"type": "string"},
		"provider":         object{"type": "string"},
		"components":       object{"type": "array", "items": object{"type": "string", "minLength": 1}},
	}
	if s.Name == Trial {
		hidden["region"] = object{"type": "string", "enum": trialRegionNames}
		hidden["provider"] = object{"type": "string", "enum": []string{
			ProviderAzure, ProviderAWS, ProviderGCP, "Azure", "AWS", "GCP",
		}}
	}
	for name, rule := range hidden {
		if _, published := p[name]; !published {
			p[name] = rule
		}
	}
	return o
}

// machineSizes are the texts that follow the machine types in a form.
var machineSizes = map[string]string{
	"m5.xlarge": " (4 vCPU, 16 GB)", "m5.2xlarge": " (8 vCPU, 32 GB)", "m5.4xlarge": " (16 vCPU, 64 GB)",
	"m5.8xlarge": " (32 vCPU, 128 GB)", "m5.12xlarge": " (48 vCPU, 192 GB)",
	"m6i.xlarge": " (4 vCPU, 16 GB)", "m6i.2xlarge": " (8 vCPU, 32 GB)", "m6i.4xlarge": " (16 vCPU, 64 GB)",
	"m6i.8xlarge": " (32 vCPU, 128 GB)", "m6i.12xlarge": " (48 vCPU, 192 GB)",
	"n2-standard-4": " (4 vCPU, 16 GB)", "n2-standard-8": " (8 vCPU, 32 GB)", "n2-standard-16": " (16 vCPU, 64 GB)",
	"n2-standard-32": " (32 vCPU, 128 GB)", "n2-standard-48": " (48 vCPU, 192 GB)",
	"Standard_D4_v3": " (4 vCPU, 16 GB)", "Standard_D8_v3": " (8 vCPU, 32 GB)", "Standard_D16_v3": " (16 vCPU, 64 GB)",
	"Standard_D32_v3": " (32 vCPU, 128 GB)", "Standard_D48_v3": " (48 vCPU, 192 GB)",
	"Standard_D64_v3": " (64 vCPU, 256 GB)",
	"g_c4_m16":        " (4 vCPU, 16 GB)", "g_c8_m32": " (8 vCPU, 32 GB)",
}
