package provisioner

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

// inputStep only builds the input, because only the SDK creates an operation with parameters.
type inputStep struct {
	shared
	input RuntimeInput
	err   error
}

func (*inputStep) Name() string { return "input" }

func (s *inputStep) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	s.input, s.err = s.newRuntimeInput(op, "secret")
	return op, 0, nil
}

// settings returns the defaults of the worker.
func settings() Config {
	return Config{KubernetesVersion: "1.16.9", FloatingPool: "FloatingIP-external-cp-kyma", Purpose: "development", TrialNodes: 1}
}

func oidc() map[string]any {
	return map[string]any{
		"clientID": "id", "issuerURL": "https://i", "groupsClaim": "g", "signingAlgs": []string{"RS256"}, "usernameClaim": "sub", "usernamePrefix": "-",
	}
}

// instance returns an order of a plan, with parameters in addition to the OIDC configuration.
func instance(plan, provider, region string, parameters map[string]any) workertest.Operation {
	all := map[string]any{"oidc": oidc()}
	maps.Copy(all, parameters)
	return workertest.Operation{
		InstanceID: "5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20", Plan: event.Plan{Name: plan}, Parameters: all,
		Context: event.Context{GlobalAccountID: "ga", SubaccountID: "sa", UserID: "me@example.com", PlatformRegion: "cf-eu10"},
		Runtime: event.Runtime{Name: "Demo Name", ShootName: "c-1", ShootDomain: "c-1.example.com", Provider: provider, Region: region},
	}
}

func build(t *testing.T, cfg Config, op workertest.Operation) (RuntimeInput, error) {
	t.Helper()
	s := &inputStep{shared: shared{cfg: cfg}}
	workertest.Run(t, s, op)
	return s.input, s.err
}

// row is one row of docs/contracts/runtime-provisioner.md#values-of-a-plan, without the choice of zones.
type row struct {
	plan, provider, region string
	machine, disk          string
	min, max               int
	worker                 string
	purpose, licence       string
	network                string // providerSpecificConfig, with the names of zones replaced by Z
	exposure               string
	zones                  []string // the possible choices
}

const (
	azureWide   = `{"azureConfig":{"azureZones":[{"cidr":"10.250.0.0/19","name":Z}],"enableNatGateway":true,"vnetCidr":"10.250.0.0/16"}}`
	azureNarrow = `{"azureConfig":{"azureZones":[{"cidr":"10.250.0.0/19","name":Z}],"enableNatGateway":%t,"vnetCidr":"10.250.0.0/19"}}`
	awsOne      = `{"awsConfig":{"awsZones":[{"internalCidr":"10.250.48.0/20","name":"Z","publicCidr":"10.250.32.0/20","workerCidr":"10.250.0.0/19"}],"vpcCidr":"10.250.0.0/16"}}`
	gcpOne      = `{"gcpConfig":{"zones":["Z"]}}`
	openStack   = `{"openStackConfig":{"cloudProfileName":"converged-cloud-cp","floatingPoolName":"FloatingIP-external-cp-kyma","loadBalancerProvider":"f5","zones":["Z"]}}`
)

func rows() []row {
	azure, central := []string{"1", "2", "3"}, []string{"eu-central-1a", "eu-central-1b", "eu-central-1c"}
	europe := []string{"europe-west3-a", "europe-west3-b", "europe-west3-c"}
	lite, small := fmt.Sprintf(azureNarrow, true), fmt.Sprintf(azureNarrow, false)
	const large, narrow = "10.250.0.0/16", "10.250.0.0/19"
	return []row{
		{"azure", "azure", "eastus", "Standard_D4_v3", "Standard_LRS 50", 3, 20, large, "development", "", azureWide, "", azure},
		{"azure_lite", "azure", "eastus", "Standard_D4_v3", "Standard_LRS 50", 2, 10, narrow, "development", licenceTest, lite, "", azure},
		{"trial", "azure", "eastus", "Standard_D4_v3", "Standard_LRS 50", 1, 1, narrow, "evaluation", licenceTest, small, "", azure},
		{"free", "azure", "eastus", "Standard_D4_v3", "Standard_LRS 50", 1, 1, narrow, "evaluation", "", small, "", azure},
		{"aws", "aws", "eu-central-1", "m5.xlarge", "gp2 50", 3, 20, large, "development", "", awsOne, "", central},
		{"preview", "aws", "eu-central-1", "m5.xlarge", "gp2 50", 3, 20, large, "development", "", awsOne, "", central},
		{"trial", "aws", "eu-west-1", "m5.xlarge", "gp2 50", 1, 1, narrow, "evaluation", licenceTest, awsOne, "", []string{"eu-west-1a"}},
		{"free", "aws", "eu-central-1", "m5.xlarge", "gp2 50", 1, 1, narrow, "evaluation", "", awsOne, "", central},
		{"gcp", "gcp", "europe-west3", "n2-standard-4", "pd-standard 50", 3, 20, narrow, "development", "", gcpOne, "", europe},
		{"trial", "gcp", "europe-west3", "n2-standard-4", "pd-standard 30", 1, 1, narrow, "development", licenceTest, gcpOne, "", europe},
		{
			"openstack", "openstack", "eu-de-2", "g_c4_m16", " 0", 4, 8, narrow, "development", "", openStack, "converged-cloud-internet",
			[]string{"eu-de-2a", "eu-de-2b", "eu-de-2d"},
		},
	}
}

func TestRuntimeInput_EveryPlan_HasItsRow(t *testing.T) {
	t.Parallel()
	for _, want := range rows() {
		t.Run(want.plan+" "+want.provider, func(t *testing.T) {
			t.Parallel()
			input, err := build(t, settings(), instance(want.plan, want.provider, "", nil))
			require.NoError(t, err)
			g := input.ClusterConfig.GardenerConfig
			network, err := json.Marshal(g.ProviderSpecificConfig)
			require.NoError(t, err)
			text := string(network)
			zone := zoneIn(t, text, want.zones)
			for _, form := range []string{`"name":` + zone, `"name":"` + zone + `"`, `["` + zone + `"]`} {
				text = strings.Replace(text, form, strings.Replace(form, zone, "Z", 1), 1)
			}
			got := row{
				want.plan, g.Provider, g.Region, g.MachineType, fmt.Sprint(g.DiskType, " ", g.VolumeSizeGB), g.AutoScalerMin, g.AutoScalerMax,
				g.WorkerCidr, g.Purpose, g.LicenceType, text, g.ExposureClassName, want.zones,
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if g.MaxSurge != 1 || g.MaxUnavailable != 0 || g.ControlPlaneFailureTolerance != "" {
				t.Errorf("surge %d, unavailable %d, tolerance %q", g.MaxSurge, g.MaxUnavailable, g.ControlPlaneFailureTolerance)
			}
		})
	}
}

func zoneIn(t *testing.T, network string, zones []string) string {
	t.Helper()
	i := slices.IndexFunc(zones, func(zone string) bool {
		return strings.Contains(network, `"`+zone+`"`) || strings.Contains(network, `"name":`+zone)
	})
	if i < 0 {
		t.Fatalf("none of the zones %v in %s", zones, network)
	}
	return zones[i]
}

func TestRuntimeInput_ZonesOfInstances_DifferAndStay(t *testing.T) {
	t.Parallel()
	picked := map[string]int{}
	for i := range 90 {
		id := fmt.Sprint("instance-", i)
		first := pickZones(id, "azure", "eastus", 1)
		if diff := cmp.Diff(first, pickZones(id, "azure", "eastus", 1)); diff != "" {
			t.Fatalf("a repeated order has other zones (-first +second):\n%s", diff)
		}
		picked[first[0]]++
	}
	for _, zone := range []string{"1", "2", "3"} {
		if picked[zone] < 15 {
			t.Errorf("zone %s was picked %d times of 90", zone, picked[zone])
		}
	}
}

func TestRuntimeInput_AWSRegions_HaveTheirLetters(t *testing.T) {
	t.Parallel()
	for region, letters := range map[string]string{
		"eu-central-1": "abc", "ca-central-1": "abd", "us-east-1": "abcdf", "us-west-1": "ab", "ap-northeast-1": "acd", "eu-west-1": "a",
	} {
		var want []string
		for _, letter := range letters {
			want = append(want, region+string(letter))
		}
		if diff := cmp.Diff(want, zonesOf("aws", region)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", region, diff)
		}
	}
}

func TestRuntimeInput_MultiZone_SpreadsProductionPlans(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.MultiZone, cfg.ControlPlaneFailureTolerance = true, "zone"
	for _, r := range rows() {
		input, err := build(t, cfg, instance(r.plan, r.provider, "", nil))
		require.NoError(t, err)
		g := input.ClusterConfig.GardenerConfig
		wide := slices.Contains([]string{"azure", "aws", "gcp", "preview"}, r.plan)
		want := map[bool]int{true: 3, false: 1}[wide]
		if g.MaxSurge != want || (g.ControlPlaneFailureTolerance == "zone") != wide {
			t.Errorf("%s %s: surge %d, tolerance %q", r.plan, r.provider, g.MaxSurge, g.ControlPlaneFailureTolerance)
		}
		specific, err := json.Marshal(g.ProviderSpecificConfig)
		require.NoError(t, err)
		if got := strings.Count(string(specific), `"name"`); r.provider != "gcp" && r.provider != "openstack" && got != want {
			t.Errorf("%s %s: %d zones, want %d", r.plan, r.provider, got, want)
		}
	}
}

func TestRuntimeInput_Parameters_ReplaceThoseOfThePlan(t *testing.T) {
	t.Parallel()
	const second = `{"internalCidr":"10.250.112.0/20","name":"ca-central-1b","publicCidr":"10.250.96.0/20","workerCidr":"10.250.64.0/19"}`
	for name, test := range map[string]struct {
		op   workertest.Operation
		want string // machine, scale, surge, unavailable, volume, purpose, licence
		zone string // in the network
	}{
		"size": {
			instance("azure", "azure", "", map[string]any{
				"machineType": "m", "autoScalerMin": 4, "autoScalerMax": 5, "maxSurge": 6, "maxUnavailable": 7, "volumeSizeGb": 80, "purpose": "testing",
			}),
			"m 4-5 6/7 80 testing ", "",
		},
		"a licence type is not a parameter":    {instance("aws", "aws", "", map[string]any{"licence_type": licenceTest}), "m5.xlarge 3-20 1/0 50 development ", ""},
		"a number of zones is not a parameter": {instance("aws", "aws", "", map[string]any{"zonesCount": 3}), "m5.xlarge 3-20 1/0 50 development ", ""},
		"a plan without volumes":               {instance("openstack", "openstack", "", map[string]any{"volumeSizeGb": 80}), "g_c4_m16 4-8 1/0 0 development ", ""},
		"zones": {
			instance("aws", "aws", "ca-central-1", map[string]any{"zones": []string{"ca-central-1d", "ca-central-1b"}}),
			"m5.xlarge 3-20 1/0 50 development ", second,
		},
		"deprecated zones of azure free": {
			instance("free", "azure", "", map[string]any{"zones": []string{"3"}}), "Standard_D4_v3 1-1 1/0 50 evaluation ", `"zones":["3"]`,
		},
		"trials have the configured number of nodes": {
			instance("trial", "azure", "", map[string]any{"autoScalerMin": 5, "autoScalerMax": 5}), "Standard_D4_v3 1-1 1/0 50 evaluation " + licenceTest, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			input, err := build(t, settings(), test.op)
			require.NoError(t, err)
			g := input.ClusterConfig.GardenerConfig
			got := fmt.Sprintf("%s %d-%d %d/%d %d %s %s", g.MachineType, g.AutoScalerMin, g.AutoScalerMax, g.MaxSurge, g.MaxUnavailable,
				g.VolumeSizeGB, g.Purpose, g.LicenceType)
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			specific, err := json.Marshal(g.ProviderSpecificConfig)
			if err != nil || !strings.Contains(string(specific), test.zone) {
				t.Errorf("the network %s does not contain %s; %v", specific, test.zone, err)
			}
		})
	}
}

func TestRuntimeInput_LicenseType_DecidesTheNetworkingFilterOnly(t *testing.T) {
	t.Parallel()
	for license, want := range map[string]bool{"": false, "SAPDEV": false, "CUSTOMER": true, "PARTNER": true, "TRIAL": true} {
		op := instance("trial", "azure", "", nil)
		op.Context.LicenseType = license
		input, err := build(t, settings(), op)
		require.NoError(t, err)
		if g := input.ClusterConfig.GardenerConfig; g.NetworkingFilterDisabled != want || g.LicenceType != licenceTest {
			t.Errorf("%q: filter disabled %t, licence type %q", license, g.NetworkingFilterDisabled, g.LicenceType)
		}
	}
}

func TestRuntimeInput_EUAccess_FollowsThePlatformRegion(t *testing.T) {
	t.Parallel()
	for region, want := range map[string]bool{"cf-eu10": false, "cf-eu11": true, "cf-ch20": true} {
		op := instance("azure", "azure", "", nil)
		op.Context.PlatformRegion = region
		input, err := build(t, settings(), op)
		if err != nil || input.ClusterConfig.GardenerConfig.EuAccess != want {
			t.Errorf("%s: %t, %v", region, input.ClusterConfig.GardenerConfig.EuAccess, err)
		}
	}
}

func TestRuntimeInput_DNSProviders_ComeFromTheFile(t *testing.T) {
	t.Parallel()
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "dns.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	providers, err := readDNSProviders(write("providers:\n- domainsInclude: [example.com]\n  primary: true\n  secretName: aws\n  type: aws-route53\n"))
	require.NoError(t, err)
	s := &inputStep{shared: shared{cfg: settings(), dns: providers}}
	workertest.Run(t, s, instance("azure", "azure", "", nil))
	got, err := json.Marshal(s.input.ClusterConfig.GardenerConfig.DNS)
	const want = `{"domain":"c-1.example.com","providers":[{"domainsInclude":["example.com"],"primary":true,"secretName":"aws","type":"aws-route53"}]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, want %s; %v", got, want, err)
	}
	for text, want := range map[string]string{
		"providers:\n- primary: true\n": "providers[0]", "provider: []\n": "provider", "providers: [": "not YAML",
	} {
		if _, err := readDNSProviders(write(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestRuntimeInput_UnusableOrder_IsRefusedByName(t *testing.T) {
	t.Parallel()
	without := instance("aws", "aws", "", nil)
	without.Parameters = map[string]any{}
	for want, op := range map[string]workertest.Operation{
		"runtime.provider":         instance("aws", "custom", "", nil),
		"plan openstack":           instance("openstack", "aws", "", nil),
		"at most 4":                instance("aws", "aws", "", map[string]any{"zones": []string{"a", "b", "c", "d", "e"}}),
		`"4" is not allowed`:       instance("azure", "azure", "", map[string]any{"zones": []string{"4"}}),
		"azure_lite has at most 1": instance("azure_lite", "azure", "", map[string]any{"zones": []string{"1", "2"}}),
		"machineType":              instance("aws", "aws", "", map[string]any{"machineType": 7}),
		"parameters.oidc":          without,
	} {
		if _, err := build(t, settings(), op); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s in %v", want, err)
		}
	}
}

func TestRuntimeName_LongName_IsShortAndUnique(t *testing.T) {
	t.Parallel()
	a, b := RuntimeName(strings.Repeat("My Name!", 10), "a"), RuntimeName(strings.Repeat("My Name!", 10), "b")
	if len(a) != 36 || a == b || a != RuntimeName(strings.Repeat("My Name!", 10), "a") || !strings.HasPrefix(a, "mynamemyname") {
		t.Errorf("%q and %q", a, b)
	}
	if got := RuntimeName("a.b c", "a"); !strings.HasPrefix(got, "a.bc-") {
		t.Errorf("%q has lost its dot", got)
	}
}
