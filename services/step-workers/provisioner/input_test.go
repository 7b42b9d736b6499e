package provisioner

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

// inputStep only builds the input, as an operation with parameters comes from the SDK alone.
type inputStep struct {
	input RuntimeInput
	err   error
}

func (*inputStep) Name() string { return "input" }

func (s *inputStep) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	s.input, s.err = newRuntimeInput(Config{KubernetesVersion: "1.33.2", FloatingPool: "pool"}, op, "secret")
	return op, 0, nil
}

func build(t *testing.T, plan, provider, region string, parameters map[string]any) (RuntimeInput, error) {
	t.Helper()
	s := &inputStep{}
	if parameters == nil {
		parameters = map[string]any{}
	}
	workertest.Run(t, s, workertest.Operation{
		Plan: event.Plan{Name: plan}, Parameters: parameters,
		Context: event.Context{UserID: "me@example.com", PlatformRegion: "cf-eu11"},
		Runtime: event.Runtime{Name: "Demo Name", ShootName: "c-1", ShootDomain: "c-1.example.com", Provider: provider, Region: region},
	})
	return s.input, s.err
}

func TestClusterOfEachProviderFollowsItsDefaultsAndParameters(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, plan, provider, region string
		parameters                   map[string]any
		want                         string
	}{
		{
			"aws in two zones", "aws", "aws", "ca-central-1",
			map[string]any{"zonesCount": 2, "machineType": "m6i.2xlarge", "autoScalerMax": 9},
			`{"machine":"m6i.2xlarge","scale":[3,9],"surge":2,"disk":"gp2 50","purpose":"production","licence":"","specific":{"awsConfig":{"awsZones":[
			{"internalCidr":"10.250.48.0/20","name":"ca-central-1a","publicCidr":"10.250.32.0/20","workerCidr":"10.250.0.0/19"},
			{"internalCidr":"10.250.112.0/20","name":"ca-central-1b","publicCidr":"10.250.96.0/20","workerCidr":"10.250.64.0/19"}],"vpcCidr":"10.250.0.0/16"}}}`,
		},
		{
			"azure lite", "azure_lite", "azure", "eastus",
			map[string]any{"autoScalerMin": 2, "maxSurge": 4},
			`{"machine":"Standard_D4_v3","scale":[2,20],"surge":4,"disk":"Standard_LRS 50","purpose":"production","licence":"TestDevelopmentAndDemo",
			"specific":{"azureConfig":{"azureZones":[{"cidr":"10.250.0.0/19","name":1}],"enableNatGateway":true,"vnetCidr":"10.250.0.0/16"}}}`,
		},
		{
			"gcp with zones", "gcp", "gcp", "europe-west3",
			map[string]any{"zones": []string{"europe-west3-b"}},
			`{"machine":"n2-standard-4","scale":[3,20],"surge":1,"disk":"pd-standard 50","purpose":"production","licence":"","specific":{"gcpConfig":{"zones":["europe-west3-b"]}}}`,
		},
		{
			"openstack", "openstack", "openstack", "eu-de-1", nil,
			`{"machine":"g_c4_m16","scale":[4,8],"surge":1,"disk":" 0","purpose":"production","licence":"","specific":{"openStackConfig":
			{"cloudProfileName":"converged-cloud-cp","floatingPoolName":"pool","loadBalancerProvider":"f5","zones":["eu-de-1a"]}}}`,
		},
		{
			"trial", "trial", "azure", "westeurope", nil,
			`{"machine":"Standard_D4_v3","scale":[1,1],"surge":1,"disk":"Standard_LRS 50","purpose":"evaluation","licence":"TestDevelopmentAndDemo",
			"specific":{"azureConfig":{"azureZones":[{"cidr":"10.250.0.0/19","name":1}],"enableNatGateway":true,"vnetCidr":"10.250.0.0/16"}}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			input, err := build(t, test.plan, test.provider, test.region, test.parameters)
			if err != nil {
				t.Fatal(err)
			}
			g := input.ClusterConfig.GardenerConfig
			data, err := json.Marshal(map[string]any{
				"machine": g.MachineType, "scale": []int{g.AutoScalerMin, g.AutoScalerMax}, "surge": g.MaxSurge,
				"disk": strings.Join([]string{g.DiskType, string(mustJSON(t, g.VolumeSizeGB))}, " "), "purpose": g.Purpose,
				"licence": g.LicenceType, "specific": g.ProviderSpecificConfig,
			})
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if g.TargetSecret != "secret" || !g.EuAccess || g.KubernetesVersion != "1.33.2" || g.Region != test.region {
				t.Errorf("config %+v", g)
			}
			if labels := input.RuntimeInput.Labels; labels["operator_grafanaUrl"] != "https://grafana.c-1.example.com" || labels[labelInstance] == "" {
				t.Errorf("labels %v", labels)
			}
			if diff := cmp.Diff([]string{"me@example.com"}, input.ClusterConfig.Administrators); diff != "" {
				t.Errorf("administrators:\n%s", diff)
			}
		})
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestUnusableOrdersAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		provider   string
		parameters map[string]any
		want       string
	}{
		{"custom", nil, "runtime.provider"},
		{"aws", map[string]any{"zonesCount": 5}, "parameters.zonesCount"},
		{"aws", map[string]any{"zonesCount": 4}, "parameters.zonesCount"},
		{"aws", map[string]any{"machineType": 7}, "machineType"},
	} {
		if _, err := build(t, "aws", test.provider, "eu-central-1", test.parameters); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %v: %v", test.provider, test.parameters, err)
		}
	}
}

func TestRuntimeNameIsShortAndTellsInstancesApart(t *testing.T) {
	t.Parallel()
	a, b := RuntimeName(strings.Repeat("My Name!", 10), "a"), RuntimeName(strings.Repeat("My Name!", 10), "b")
	if len(a) != 36 || a == b || a != RuntimeName(strings.Repeat("My Name!", 10), "a") || !strings.HasPrefix(a, "mynamemyname") {
		t.Errorf("%q and %q", a, b)
	}
}
