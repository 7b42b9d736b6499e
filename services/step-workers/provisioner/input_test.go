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

// inputStep only builds an input, because only the SDK creates an operation with parameters.
type inputStep[T any] struct {
	build func(worker.Operation) (T, error)
	input T
	err   error
}

func (*inputStep[T]) Name() string { return "input" }

func (s *inputStep[T]) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	s.input, s.err = s.build(op)
	return op, 0, nil
}

func inputOf[T any](t *testing.T, op workertest.Operation, build func(worker.Operation) (T, error)) (T, error) {
	t.Helper()
	s := &inputStep[T]{build: build}
	workertest.Run(t, s, op)
	return s.input, s.err
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
	return (&shared{cfg: cfg}).runtimeInputOf(t, op)
}

func (s *shared) runtimeInputOf(t *testing.T, op workertest.Operation) (RuntimeInput, error) {
	t.Helper()
	return inputOf(t, op, func(op worker.Operation) (RuntimeInput, error) { return s.newRuntimeInput(op, "secret") })
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

func TestRuntimeInput_Regions_HaveTheirLetters(t *testing.T) {
	t.Parallel()
	for region, test := range map[string]struct{ provider, separator, letters string }{
		"eu-central-1": {"aws", "", "abc"}, "ca-central-1": {"aws", "", "abd"}, "us-east-1": {"aws", "", "abcdf"},
		"us-west-1": {"aws", "", "ab"}, "ap-northeast-1": {"aws", "", "acd"}, "eu-west-1": {"aws", "", "a"},
		"europe-west3": {"gcp", "-", "abc"}, "eu-de-2": {"openstack", "", "abd"},
	} {
		var want []string
		for _, letter := range test.letters {
			want = append(want, region+test.separator+string(letter))
		}
		if diff := cmp.Diff(want, zonesOf(test.provider, region)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", region, diff)
		}
	}
}

func TestRuntimeInput_MultiZone_SpreadsProductionPlans(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.MultiZone, cfg.ControlPlaneFailureTolerance = true, "zone"
	for _, r := range []struct{ plan, provider, region string }{
		{"azure", "azure", "eastus"},
		{"azure_lite", "azure", "eastus"},
		{"trial", "azure", "eastus"},
		{"free", "azure", "eastus"},
		{"aws", "aws", "eu-central-1"},
		{"preview", "aws", "eu-central-1"},
		{"trial", "aws", "eu-west-1"},
		{"free", "aws", "eu-central-1"},
		{"gcp", "gcp", "europe-west3"},
		{"trial", "gcp", "europe-west3"},
		{"openstack", "openstack", "eu-de-2"},
	} {
		input, err := build(t, cfg, instance(r.plan, r.provider, "", nil))
		require.NoError(t, err)
		g := input.ClusterConfig.GardenerConfig
		wide := slices.Contains([]string{"azure", "aws", "gcp", "preview"}, r.plan)
		want := map[bool]int{true: 3, false: 1}[wide]
		if g.Region != r.region {
			t.Errorf("%s %s: the default region is %s", r.plan, r.provider, g.Region)
		}
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
	input, err := (&shared{cfg: settings(), dns: providers}).runtimeInputOf(t, instance("azure", "azure", "", nil))
	require.NoError(t, err)
	got, err := json.Marshal(input.ClusterConfig.GardenerConfig.DNS)
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
