package provisioner

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"regexp"
	"strings"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/hyperscaler"
)

// RuntimeInput is the argument of provisionRuntime. Without KymaConfig it is that of 2023
// (docs/contracts/runtime-provisioner.md#provisionruntime), with KymaConfig that of 2020
// (docs/contracts/runtime-provisioner.md#kyma-1).
type RuntimeInput struct {
	RuntimeInput  RuntimeMetadata `json:"runtimeInput"`
	ClusterConfig ClusterConfig   `json:"clusterConfig"`
	KymaConfig    *KymaConfig     `json:"kymaConfig,omitempty"`
}

// RuntimeMetadata is the name and the labels of the runtime.
type RuntimeMetadata struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

// ClusterConfig describes the cluster and its administrators.
type ClusterConfig struct {
	GardenerConfig GardenerConfig `json:"gardenerConfig"`
	// Administrators is never nil in an order of 2023, and always nil in one of 2020.
	Administrators []string `json:"administrators,omitzero"`
}

// GardenerConfig describes the cluster for Gardener.
type GardenerConfig struct {
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
	AutoUpdateKubernetes   bool           `json:"enableKubernetesVersionAutoUpdate"`
	AutoUpdateMachineImage bool           `json:"enableMachineImageVersionAutoUpdate"`
	ProviderSpecificConfig map[string]any `json:"providerSpecificConfig"`
	// Gardener2023 is nil in an order of 2020.
	*Gardener2023
}

// Gardener2023 has the members of a GardenerConfig that the contract of 2020 lacks.
type Gardener2023 struct {
	Name                         string    `json:"name"`
	ExposureClassName            string    `json:"exposureClassName,omitempty"`
	EuAccess                     bool      `json:"euAccess"`
	NetworkingFilterDisabled     bool      `json:"shootNetworkingFilterDisabled"`
	ControlPlaneFailureTolerance string    `json:"controlPlaneFailureTolerance,omitempty"`
	DNS                          DNSConfig `json:"dnsConfig"`
	OIDC                         *OIDC     `json:"oidcConfig"`
}

// OIDC is the configuration of logins to the cluster.
type OIDC struct {
	ClientID       string   `json:"clientID"`
	IssuerURL      string   `json:"issuerURL"`
	GroupsClaim    string   `json:"groupsClaim"`
	SigningAlgs    []string `json:"signingAlgs"`
	UsernameClaim  string   `json:"usernameClaim"`
	UsernamePrefix string   `json:"usernamePrefix"`
}

// parameters are the OSB parameters of a cluster (docs/contracts/plans.md#parameters), with the defaults of the broker.
type parameters struct {
	Name           string   `json:"name"`
	Region         string   `json:"region"`
	MachineType    string   `json:"machineType"`
	VolumeSizeGB   int      `json:"volumeSizeGb"`
	AutoScalerMin  int      `json:"autoScalerMin"`
	AutoScalerMax  int      `json:"autoScalerMax"`
	MaxSurge       *int     `json:"maxSurge"`
	MaxUnavailable *int     `json:"maxUnavailable"`
	Zones          []string `json:"zones"`
	Purpose        string   `json:"purpose"`
	Administrators []string `json:"administrators"`
	OIDC           *OIDC    `json:"oidc"`
}

// administrators returns the stored administrators, or the user of the order; it is empty if there is neither.
func (p parameters) administrators(op worker.Operation) []string {
	if len(p.Administrators) > 0 || op.Context.UserID == "" {
		return p.Administrators
	}
	return []string{op.Context.UserID}
}

// maxSurge returns the surge of an upgrade. It does not depend on the zones of the order.
func (p parameters) maxSurge(cfg Config, of plan) int {
	if p.MaxSurge != nil {
		return *p.MaxSurge
	}
	return cmp.Or(of.maxSurge, of.zoneCount(cfg))
}

func (p parameters) maxUnavailable(of plan) int {
	if p.MaxUnavailable != nil {
		return *p.MaxUnavailable
	}
	return of.maxUnavailable
}

// readParameters returns the parameters of op. The broker stores an OIDC configuration with each order.
func readParameters(op worker.Operation) (parameters, error) {
	var p parameters
	if err := op.Parameters(&p); err != nil {
		return p, err
	}
	if p.OIDC == nil {
		return p, errors.New("parameters.oidc is missing: the broker stores it with each order")
	}
	return p, nil
}

// newRuntimeInput returns op's order of a runtime without Kyma. Its error contains the invalid parameter.
func (s *shared) newRuntimeInput(op worker.Operation, targetSecret string) (RuntimeInput, error) {
	of, err := planOf(plans, op)
	if err != nil {
		return RuntimeInput{}, err
	}
	if op.Runtime.ShootName == "" || op.Runtime.ShootDomain == "" {
		return RuntimeInput{}, errors.New("runtime.shootName or runtime.shootDomain is empty")
	}
	p, err := readParameters(op)
	if err != nil {
		return RuntimeInput{}, err
	}
	input, n, err := s.ordered(op, p, of, targetSecret)
	if err != nil {
		return RuntimeInput{}, err
	}
	input.RuntimeInput.Labels["operator_grafanaUrl"] = "https://grafana." + op.Runtime.ShootDomain
	// Send an empty list, not null, without administrators.
	input.ClusterConfig.Administrators = append([]string{}, p.administrators(op)...)
	g := &input.ClusterConfig.GardenerConfig
	g.Gardener2023 = &Gardener2023{
		Name: op.Runtime.ShootName, EuAccess: hyperscaler.EUAccess(op.Context.PlatformRegion),
		NetworkingFilterDisabled: networkingFilterDisabled(op.Context.LicenseType),
		DNS:                      DNSConfig{Domain: op.Runtime.ShootDomain, Providers: s.dns}, OIDC: p.OIDC,
	}
	if op.Plan.Name == planTrial && s.cfg.TrialNodes > 0 {
		g.AutoScalerMin, g.AutoScalerMax = s.cfg.TrialNodes, s.cfg.TrialNodes
	}
	if of.production {
		g.ControlPlaneFailureTolerance = s.cfg.ControlPlaneFailureTolerance
	}
	if g.Provider == "openstack" {
		g.ExposureClassName = "converged-cloud-internet"
	}
	g.ProviderSpecificConfig, err = n.config()
	return input, err
}

// ordered returns the common part of orders with and without Kyma, and the network of the runtime.
func (s *shared) ordered(op worker.Operation, p parameters, of plan, targetSecret string) (RuntimeInput, network, error) {
	if targetSecret == "" {
		return RuntimeInput{}, network{}, errors.New("no target secret: Resolve_Target_Secret saved none")
	}
	g := GardenerConfig{
		KubernetesVersion: s.cfg.KubernetesVersion, Provider: strings.ToLower(op.Runtime.Provider), TargetSecret: targetSecret,
		Region: cmp.Or(op.Runtime.Region, p.Region, of.region), MachineType: cmp.Or(p.MachineType, of.machineType),
		MachineImage: s.cfg.MachineImage, MachineImageVersion: s.cfg.MachineImageVersion, DiskType: of.diskType,
		WorkerCidr: of.workerCIDR, AutoScalerMin: cmp.Or(p.AutoScalerMin, of.scaleMin), AutoScalerMax: cmp.Or(p.AutoScalerMax, of.scaleMax),
		MaxSurge: p.maxSurge(s.cfg, of), MaxUnavailable: p.maxUnavailable(of),
		Purpose: cmp.Or(p.Purpose, of.purpose, s.cfg.Purpose), LicenceType: of.licenceType,
		AutoUpdateKubernetes: s.cfg.KubernetesAutoUpdate, AutoUpdateMachineImage: s.cfg.MachineImageAutoUpdate,
	}
	if of.volumeSizeGB > 0 {
		g.VolumeSizeGB = cmp.Or(p.VolumeSizeGB, of.volumeSizeGB)
	}
	n, err := newNetwork(s.cfg, of, op.Plan.Name, g.Provider, g.Region, op.InstanceID, p.Zones)
	return RuntimeInput{
		RuntimeInput: RuntimeMetadata{
			Name:   RuntimeName(cmp.Or(p.Name, op.Runtime.Name), op.InstanceID),
			Labels: map[string]string{labelInstance: op.InstanceID, "global_subaccount_id": op.Context.SubaccountID},
		},
		ClusterConfig: ClusterConfig{GardenerConfig: g},
	}, n, err
}

var forbidden = regexp.MustCompile(`[^a-zA-Z0-9\-.]+`)

// RuntimeName returns the name of a runtime, at most 36 characters long. Its suffix distinguishes instances with the same name, and is the
// same in every attempt.
func RuntimeName(name, instanceID string) string {
	const suffix, longest = 5, 36
	name = strings.ToLower(forbidden.ReplaceAllString(name, ""))
	if len(name) > longest-suffix-1 {
		name = name[:longest-suffix-1]
	}
	sum := sha256.Sum256([]byte(instanceID))
	return name + "-" + hex.EncodeToString(sum[:])[:suffix]
}
