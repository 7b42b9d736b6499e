package provisioner

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

func upgradeOf(t *testing.T, cfg Config, op workertest.Operation) string {
	t.Helper()
	input, err := inputOf(t, op, (&shared{cfg: cfg}).upgradeInput)
	require.NoError(t, err)
	got, err := json.Marshal(input)
	require.NoError(t, err)
	return string(got)
}

const sentOIDC = `"oidcConfig":{"clientID":"id","issuerURL":"https://i","groupsClaim":"g","signingAlgs":["RS256"],"usernameClaim":"sub","usernamePrefix":"-"}`

func TestUpdateInput_AnyChange_SendsWhoMayLogIn(t *testing.T) {
	t.Parallel()
	const rest = `"shootNetworkingFilterDisabled":false,` + sentOIDC + `},"administrators":["a"]}`
	for name, test := range map[string]struct {
		changes *event.Changes
		license string
		want    string
	}{
		"the context only":     {&event.Changes{}, "", `{"gardenerConfig":{` + rest},
		"no changes at all":    {nil, "", `{"gardenerConfig":{` + rest},
		"not of the cluster":   {&event.Changes{Parameters: json.RawMessage(`{"region":"r","name":"n","kubernetesVersion":"9"}`)}, "", `{"gardenerConfig":{` + rest},
		"size":                 {&event.Changes{Parameters: json.RawMessage(`{"autoScalerMin":4,"autoScalerMax":9}`)}, "", `{"gardenerConfig":{"autoScalerMin":4,"autoScalerMax":9,` + rest},
		"rolling updates":      {&event.Changes{Parameters: json.RawMessage(`{"maxSurge":5,"maxUnavailable":0}`)}, "", `{"gardenerConfig":{"maxSurge":5,"maxUnavailable":0,` + rest},
		"machines":             {&event.Changes{Parameters: json.RawMessage(`{"machineType":"big"}`)}, "", `{"gardenerConfig":{"machineType":"big",` + rest},
		"an empty list":        {&event.Changes{Parameters: json.RawMessage(`{"administrators":[]}`)}, "", `{"gardenerConfig":{` + rest},
		"log on, always whole": {&event.Changes{Parameters: json.RawMessage(`{"oidc":{"clientID":"id"}}`)}, "", `{"gardenerConfig":{` + rest},
		"a customer":           {&event.Changes{LicenseType: true}, "CUSTOMER", `{"gardenerConfig":{` + strings.Replace(rest, "false", "true", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := instance("azure", "azure", "", map[string]any{
				"machineType": "m", "autoScalerMin": 3, "autoScalerMax": 9, "maxSurge": 2, "maxUnavailable": 1, "administrators": []string{"a"},
			})
			op.Type, op.Update, op.Context.LicenseType = event.Update, test.changes, test.license
			if diff := cmp.Diff(test.want, upgradeOf(t, settings(), op)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUpdateInput_WithoutAdministrators_NamesTheUser(t *testing.T) {
	t.Parallel()
	op := instance("azure", "azure", "", nil)
	op.Type = event.Update
	if got := upgradeOf(t, settings(), op); !strings.HasSuffix(got, `,"administrators":["me@example.com"]}`) {
		t.Errorf("with a user: %s", got)
	}
	op.Context.UserID = ""
	if got := upgradeOf(t, settings(), op); strings.Contains(got, "administrators") {
		t.Errorf("without a user: %s", got)
	}
}

func TestUpdateInput_UnusableChange_IsRefusedByName(t *testing.T) {
	t.Parallel()
	op := instance("azure", "azure", "", nil)
	op.Type, op.Update = event.Update, &event.Changes{Parameters: json.RawMessage(`{"autoScalerMax":"many"}`)}
	_, err := inputOf(t, op, (&shared{}).upgradeInput)
	if err == nil || !strings.Contains(err.Error(), "update.parameters") || !strings.Contains(err.Error(), "autoScalerMax") {
		t.Errorf("%v", err)
	}
}

func TestClusterInput_Upgrade_SendsVersionsAndWhatIsStored(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.KubernetesVersion, cfg.MachineImage, cfg.MachineImageVersion, cfg.KubernetesAutoUpdate = "1.33.2", "gardenlinux", "1.2", true
	const flags = `"enableKubernetesVersionAutoUpdate":true,"enableMachineImageVersionAutoUpdate":false,"shootNetworkingFilterDisabled":true,` + sentOIDC +
		`},"administrators":["a"]}`
	const surge = `"maxSurge":1,"maxUnavailable":0,`
	for name, test := range map[string]struct {
		plan       string
		parameters map[string]any
		upgrade    event.Upgrade
		want       string
	}{
		"configured":           {"azure", nil, event.Upgrade{}, `"kubernetesVersion":"1.33.2","machineImage":"gardenlinux","machineImageVersion":"1.2",` + surge},
		"another image":        {"azure", nil, event.Upgrade{MachineImage: "ubuntu"}, `"kubernetesVersion":"1.33.2","machineImage":"ubuntu",` + surge},
		"only a version":       {"azure", nil, event.Upgrade{MachineImageVersion: "1.3"}, `"kubernetesVersion":"1.33.2","machineImage":"gardenlinux","machineImageVersion":"1.3",` + surge},
		"of the orchestration": {"azure", nil, event.Upgrade{KubernetesVersion: "1.34.1"}, `"kubernetesVersion":"1.34.1","machineImage":"gardenlinux","machineImageVersion":"1.2",` + surge},
		"rolling updates": {
			"azure",
			map[string]any{"maxSurge": 4, "maxUnavailable": 2},
			event.Upgrade{},
			`"kubernetesVersion":"1.33.2","machineImage":"gardenlinux","machineImageVersion":"1.2","maxSurge":4,"maxUnavailable":2,`,
		},
		"trial": {
			"trial", nil,
			event.Upgrade{},
			`"kubernetesVersion":"1.33.2","machineImage":"gardenlinux","machineImageVersion":"1.2","autoScalerMin":1,"autoScalerMax":1,` + surge,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parameters := map[string]any{"administrators": []string{"a"}}
			maps.Copy(parameters, test.parameters)
			op := instance(test.plan, "azure", "", parameters)
			op.Type, op.Upgrade, op.Context.LicenseType = event.UpgradeCluster, &test.upgrade, "TRIAL"
			if diff := cmp.Diff(`{"gardenerConfig":{`+test.want+flags, upgradeOf(t, cfg, op)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
