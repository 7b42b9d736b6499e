package provisioner

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/hyperscaler"
)

// RuntimeInput is the argument of provisionRuntime (facts/keb.md 5.4). Without KymaConfig it is a cluster without Kyma.
type RuntimeInput struct {
	RuntimeInput  RuntimeMetadata `json:"runtimeInput"`
	ClusterConfig ClusterConfig   `json:"clusterConfig"`
	KymaConfig    *KymaConfig     `json:"kymaConfig,omitempty"`
}

// RuntimeMetadata names the runtime.
type RuntimeMetadata struct {
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Labels      map[string]string `json:"labels"`
}

// ClusterConfig describes the cluster and who administers it.
type ClusterConfig struct {
	GardenerConfig GardenerConfig `json:"gardenerConfig"`
	Administrators []string       `json:"administrators,omitempty"`
}

// GardenerConfig describes the cluster as Gardener sees it. NetworkingFilter tells whether the filter is off; it is absent
// when the order has no license type.
type GardenerConfig struct {
	Name                   string         `json:"name"`
	KubernetesVersion      string         `json:"kubernetesVersion"`
	Provider               string         `json:"provider"`
	TargetSecret           string         `json:"targetSecret"`
	Region                 string         `json:"region"`
	MachineType            string         `json:"machineType"`
	MachineImage           string         `json:"machineImage,omitempty"`
	MachineImageVersion    string         `json:"machineImageVersion,omitempty"`
	DiskType               string         `json:"diskType,omitempty"`
	VolumeSizeGB           int            `json:"volumeSizeGB,omitempty"`
	WorkerCidr             string         `json:"workerCidr"`
	AutoScalerMin          int            `json:"autoScalerMin"`
	AutoScalerMax          int            `json:"autoScalerMax"`
	MaxSurge               int            `json:"maxSurge"`
	MaxUnavailable         int            `json:"maxUnavailable"`
	Purpose                string         `json:"purpose,omitempty"`
	LicenceType            string         `json:"licenceType,omitempty"`
	ExposureClassName      string         `json:"exposureClassName,omitempty"`
	EuAccess               bool           `json:"euAccess"`
	AutoUpdateKubernetes   bool           `json:"enableKubernetesVersionAutoUpdate"`
	AutoUpdateMachineImage bool           `json:"enableMachineImageVersionAutoUpdate"`
	NetworkingFilter       *bool          `json:"shootNetworkingFilterDisabled,omitempty"`
	ProviderSpecificConfig map[string]any `json:"providerSpecificConfig"`
	OIDC                   *OIDC          `json:"oidcConfig,omitempty"`
}

// OIDC says who may log in to the cluster.
type OIDC struct {
	ClientID       string   `json:"clientID"`
	IssuerURL      string   `json:"issuerURL"`
	GroupsClaim    string   `json:"groupsClaim"`
	SigningAlgs    []string `json:"signingAlgs"`
	UsernameClaim  string   `json:"usernameClaim"`
	UsernamePrefix string   `json:"usernamePrefix"`
}

// parameters are the OSB parameters that describe a cluster (facts/keb.md 2.3).
type parameters struct {
	Name           string   `json:"name"`
	Region         string   `json:"region"`
	MachineType    string   `json:"machineType"`
	VolumeSizeGB   int      `json:"volumeSizeGb"`
	AutoScalerMin  int      `json:"autoScalerMin"`
	AutoScalerMax  int      `json:"autoScalerMax"`
	MaxSurge       *int     `json:"maxSurge"`
	MaxUnavailable int      `json:"maxUnavailable"`
	ZonesCount     int      `json:"zonesCount"`
	Zones          []string `json:"zones"`
	Purpose        string   `json:"purpose"`
	LicenceType    string   `json:"licence_type"`
	Administrators []string `json:"administrators"`
	OIDC           *OIDC    `json:"oidc"`
}

// defaults of a provider (facts/keb.md 2.4), for orders that do not say.
type defaults struct {
	machineType, region, diskType string
	volumeSizeGB, scaleMin        int
	scaleMax                      int
}

var providerDefaults = map[string]defaults{
	"aws":       {machineType: "m5.xlarge", region: "eu-central-1", diskType: "gp2", volumeSizeGB: 50, scaleMin: 3, scaleMax: 20},
	"azure":     {machineType: "Standard_D4_v3", region: "eastus", diskType: "Standard_LRS", volumeSizeGB: 50, scaleMin: 3, scaleMax: 20},
	"gcp":       {machineType: "n2-standard-4", region: "europe-west3", diskType: "pd-standard", volumeSizeGB: 50, scaleMin: 3, scaleMax: 20},
	"openstack": {machineType: "g_c4_m16", region: "eu-de-1", scaleMin: 4, scaleMax: 8},
}

const (
	workerCIDR = "10.250.0.0/16"
	// maxZones is how many zones the address plan of facts/keb.md 2.4 has room for.
	maxZones = 4
	// licenceTest is the licence type of clusters that nobody pays the full price for.
	licenceTest = "TestDevelopmentAndDemo"
)

// newRuntimeInput describes the runtime that op ordered. The error names the parameter that cannot be used.
func newRuntimeInput(cfg Config, op worker.Operation, targetSecret string) (RuntimeInput, error) {
	var p parameters
	if err := op.Parameters(&p); err != nil {
		return RuntimeInput{}, err
	}
	provider := strings.ToLower(op.Runtime.Provider)
	def, ok := providerDefaults[provider]
	if !ok {
		return RuntimeInput{}, fmt.Errorf("runtime.provider: %q is unknown, want aws, azure, gcp or openstack", op.Runtime.Provider)
	}
	if op.Runtime.ShootName == "" {
		return RuntimeInput{}, errors.New("runtime.shootName is empty")
	}
	if targetSecret == "" {
		return RuntimeInput{}, errors.New("no target secret: Resolve_Target_Secret has saved none")
	}
	small := op.Plan.Name == "trial" || op.Plan.Name == "free"
	if small {
		def.scaleMin, def.scaleMax = 1, 1
	}
	g := GardenerConfig{
		Name: op.Runtime.ShootName, KubernetesVersion: cfg.KubernetesVersion, Provider: provider, TargetSecret: targetSecret,
		Region:       cmp.Or(op.Runtime.Region, p.Region, def.region),
		MachineType:  cmp.Or(p.MachineType, def.machineType),
		MachineImage: cfg.MachineImage, MachineImageVersion: cfg.MachineImageVersion,
		AutoUpdateKubernetes: cfg.KubernetesAutoUpdate, AutoUpdateMachineImage: cfg.MachineImageAutoUpdate,
		DiskType: def.diskType, VolumeSizeGB: cmp.Or(p.VolumeSizeGB, def.volumeSizeGB), WorkerCidr: workerCIDR,
		AutoScalerMin: cmp.Or(p.AutoScalerMin, def.scaleMin), AutoScalerMax: cmp.Or(p.AutoScalerMax, def.scaleMax),
		MaxUnavailable: p.MaxUnavailable, Purpose: p.Purpose, LicenceType: p.LicenceType,
		EuAccess: hyperscaler.EUAccess(op.Context.PlatformRegion), OIDC: p.OIDC,
	}
	if op.Context.LicenseType != "" {
		g.NetworkingFilter = new(networkingFilterDisabled(op.Context.LicenseType))
	}
	if g.Purpose == "" {
		g.Purpose = "production"
		if small {
			g.Purpose = "evaluation"
		}
	}
	if g.LicenceType == "" && (op.Plan.Name == "azure_lite" || op.Plan.Name == "trial") {
		g.LicenceType = licenceTest
	}
	zones, err := zones(provider, g.Region, p)
	if err != nil {
		return RuntimeInput{}, err
	}
	g.MaxSurge = len(zones)
	if p.MaxSurge != nil {
		g.MaxSurge = *p.MaxSurge
	}
	if provider == "openstack" {
		g.ExposureClassName = "converged-cloud-internet"
	}
	g.ProviderSpecificConfig = providerConfig(cfg, provider, zones)

	administrators := p.Administrators
	if len(administrators) == 0 && op.Context.UserID != "" {
		administrators = []string{op.Context.UserID}
	}
	return RuntimeInput{
		RuntimeInput: RuntimeMetadata{
			Name: RuntimeName(cmp.Or(p.Name, op.Runtime.Name), op.InstanceID),
			Labels: map[string]string{
				labelInstance:           op.InstanceID,
				"global_subaccount_id":  op.Context.SubaccountID,
				"operator_grafanaUrl":   "https://grafana." + op.Runtime.ShootDomain,
				"broker_plan_id":        op.Plan.ID,
				"broker_plan_name":      op.Plan.Name,
				"global_account_id":     op.Context.GlobalAccountID,
				"broker_operation_id":   op.ID,
				"operator_shoot_domain": op.Runtime.ShootDomain,
			},
		},
		ClusterConfig: ClusterConfig{GardenerConfig: g, Administrators: administrators},
	}, nil
}

var forbidden = regexp.MustCompile(`[^a-zA-Z0-9-]+`)

// RuntimeName makes the name of a runtime, at most 36 characters long. Its end tells apart instances of one name, and
// is the same for one instance in every attempt.
func RuntimeName(name, instanceID string) string {
	const suffix, longest = 5, 36
	name = strings.ToLower(forbidden.ReplaceAllString(name, ""))
	if len(name) > longest-suffix-1 {
		name = name[:longest-suffix-1]
	}
	sum := sha256.Sum256([]byte(instanceID))
	return name + "-" + hex.EncodeToString(sum[:])[:suffix]
}

// zoneLetters are the zones of the regions that have not simply a, b and c.
var zoneLetters = map[string]string{
	"us-east-1": "abcdf", "us-west-1": "ab", "ap-northeast-1": "acd", "ca-central-1": "abd",
}

// zones are the names of the runtime's zones.
func zones(provider, region string, p parameters) ([]string, error) {
	n := cmp.Or(p.ZonesCount, 1)
	if len(p.Zones) > 0 {
		n = len(p.Zones)
	}
	if n < 1 || n > maxZones {
		return nil, fmt.Errorf("parameters.zonesCount: %d is not allowed, want 1 to %d", n, maxZones)
	}
	if len(p.Zones) > 0 {
		return p.Zones, nil
	}
	available := azureZones
	if provider != "azure" {
		sep := ""
		if provider == "gcp" {
			sep = "-"
		}
		available = nil
		for _, letter := range cmp.Or(zoneLetters[region], "abc") {
			available = append(available, region+sep+string(letter))
		}
	}
	if n > len(available) {
		return nil, fmt.Errorf("parameters.zonesCount: %d is not allowed, region %s has %d", n, region, len(available))
	}
	return slices.Clone(available[:n]), nil
}

var azureZones = []string{"1", "2", "3"}
