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

// upgradeInputStep only builds the input, as an operation with parameters comes from the SDK alone.
type upgradeInputStep struct {
	cfg     Config
	input   UpgradeInput
	changes bool
	err     error
}

func (*upgradeInputStep) Name() string { return "input" }

func (s *upgradeInputStep) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	s.input, s.changes, s.err = (&shared{cfg: s.cfg}).upgradeInput(op)
	return op, 0, nil
}

func TestUpdateSendsOnlyWhatItChanges(t *testing.T) {
	t.Parallel()
	// What the instance is to be afterwards; most of it is as it was.
	parameters := map[string]any{
		"machineType": "m", "autoScalerMin": 3, "autoScalerMax": 9, "maxSurge": 2, "maxUnavailable": 1, "region": "r",
		"administrators": []string{"a"},
		"oidc": map[string]any{
			"clientID": "id", "issuerURL": "https://i", "groupsClaim": "g", "signingAlgs": []string{"RS256"}, "usernameClaim": "sub", "usernamePrefix": "-",
		},
	}
	for name, test := range map[string]struct {
		changes event.Changes
		license string
		want    string // empty: nothing is sent
	}{
		"nothing":              {event.Changes{}, "CUSTOMER", ``},
		"not of the cluster":   {event.Changes{Parameters: json.RawMessage(`{"region":"r","name":"n","kubernetesVersion":"9"}`)}, "", ``},
		"size":                 {event.Changes{Parameters: json.RawMessage(`{"autoScalerMin":4,"autoScalerMax":9}`)}, "", `{"gardenerConfig":{"autoScalerMin":4,"autoScalerMax":9}}`},
		"rolling updates":      {event.Changes{Parameters: json.RawMessage(`{"maxSurge":5,"maxUnavailable":0}`)}, "", `{"gardenerConfig":{"maxSurge":5,"maxUnavailable":0}}`},
		"machines":             {event.Changes{Parameters: json.RawMessage(`{"machineType":"big"}`)}, "", `{"gardenerConfig":{"machineType":"big"}}`},
		"administrators":       {event.Changes{Parameters: json.RawMessage(`{"administrators":["b","c"]}`)}, "", `{"gardenerConfig":{},"administrators":["b","c"]}`},
		"log on, always whole": {event.Changes{Parameters: json.RawMessage(`{"oidc":{"clientID":"id"}}`)}, "", `{"gardenerConfig":{"oidcConfig":{"clientID":"id","issuerURL":"https://i","groupsClaim":"g","signingAlgs":["RS256"],"usernameClaim":"sub","usernamePrefix":"-"}}}`},
		"a customer":           {event.Changes{LicenseType: true}, "CUSTOMER", `{"gardenerConfig":{"shootNetworkingFilterDisabled":true}}`},
		"a partner":            {event.Changes{LicenseType: true}, "PARTNER", `{"gardenerConfig":{"shootNetworkingFilterDisabled":true}}`},
		"a trial":              {event.Changes{LicenseType: true}, "TRIAL", `{"gardenerConfig":{"shootNetworkingFilterDisabled":true}}`},
		"a developer":          {event.Changes{LicenseType: true}, "SAPDEV", `{"gardenerConfig":{"shootNetworkingFilterDisabled":false}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &upgradeInputStep{cfg: Config{KubernetesVersion: "1.33.2"}}
			workertest.Run(t, s, workertest.Operation{
				Type: event.Update, Parameters: parameters, Context: event.Context{LicenseType: test.license}, Update: &test.changes,
			})
			if s.err != nil || s.changes != (test.want != "") {
				t.Fatalf("changes %t, %v", s.changes, s.err)
			}
			if !s.changes {
				return
			}
			got, err := json.Marshal(s.input)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnusableUpdateIsRefusedByName(t *testing.T) {
	t.Parallel()
	s := &upgradeInputStep{}
	workertest.Run(t, s, workertest.Operation{Type: event.Update, Update: &event.Changes{Parameters: json.RawMessage(`{"autoScalerMax":"many"}`)}})
	if s.err == nil || !strings.Contains(s.err.Error(), "update.parameters") || !strings.Contains(s.err.Error(), "autoScalerMax") {
		t.Errorf("%v", s.err)
	}
}

func TestImageAndItsVersionComeFromOnePlace(t *testing.T) {
	t.Parallel()
	cfg := Config{KubernetesVersion: "1.33.2", MachineImage: "gardenlinux", MachineImageVersion: "1.2", KubernetesAutoUpdate: true}
	const flags = `"enableKubernetesVersionAutoUpdate":true,"enableMachineImageVersionAutoUpdate":false}}`
	for name, test := range map[string]struct {
		upgrade event.Upgrade
		want    string
	}{
		"configured":     {event.Upgrade{}, `{"gardenerConfig":{"kubernetesVersion":"1.33.2","machineImage":"gardenlinux","machineImageVersion":"1.2",` + flags},
		"another image":  {event.Upgrade{MachineImage: "ubuntu"}, `{"gardenerConfig":{"kubernetesVersion":"1.33.2","machineImage":"ubuntu",` + flags},
		"only a version": {event.Upgrade{MachineImageVersion: "1.3"}, `{"gardenerConfig":{"kubernetesVersion":"1.33.2","machineImage":"gardenlinux","machineImageVersion":"1.3",` + flags},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &upgradeInputStep{cfg: cfg}
			workertest.Run(t, s, workertest.Operation{Type: event.UpgradeCluster, Upgrade: &test.upgrade})
			got, err := json.Marshal(s.input)
			if err != nil || s.err != nil || !s.changes {
				t.Fatal(err, s.err, s.changes)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
