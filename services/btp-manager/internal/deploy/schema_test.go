package deploy_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/btp-manager/internal/config"
)

func TestChart_InvalidValues_AreNamed(t *testing.T) {
	t.Parallel()
	for values, names := range map[string]string{
		`replicas: -1`:                                      "/replicas",
		`replicas: two`:                                     "/replicas",
		`replica: 2`:                                        "'replica'",
		`namespace: Kyma_System`:                            "/namespace",
		`settings: {ReadyTimeout: soon}`:                    "/settings/ReadyTimeout",
		`settings: {ReadyTimeout: 60}`:                      "/settings/ReadyTimeout",
		`settings: {ReadyTimout: 60s}`:                      "'ReadyTimout'",
		`settings: {BlockDeletion: "yes"}`:                  "/settings/BlockDeletion",
		`settings: {ChartNamespace: x}`:                     "'ChartNamespace'",
		`configMap: {settings: {HardDeleteTimeout: never}}`: "/configMap/settings/HardDeleteTimeout",
		`configMap: {settings: {SecretName: mine}}`:         "'SecretName'",
		`image: {repository: ""}`:                           "/image/repository",
		`image: {digest: "sha256:abc"}`:                     "/image/digest",
		`image: {pullPolicy: Sometimes}`:                    "/image/pullPolicy",
		`imagePullSecrets: [registry]`:                      "/imagePullSecrets/0",
		`log: {level: loud}`:                                "/log/level",
		`log: {format: xml}`:                                "/log/format",
		`btpOperator: {name: Btp Operator}`:                 "/btpOperator/name",
		`networkPolicy: {apiServerPorts: [0]}`:              "/networkPolicy/apiServerPorts/0",
		`networkPolicy: {apiServerPorts: []}`:               "/networkPolicy/apiServerPorts",
		`networkPolicy: {metricsFrom: [{podselector: {}}]}`: "'podselector'",
		`serviceMonitor: {interval: often}`:                 "/serviceMonitor/interval",
		`prerequisites: {priorityClassValue: 2000000000}`:   "/prerequisites/priorityClassValue",
		`dashboard: {labels: {grafana_dashboard: 1}}`:       "/dashboard/labels/grafana_dashboard",
		`prometheusRule: {disabled: BtpManagerDown}`:        "/prometheusRule/disabled",
		`nodeSelector: {kubernetes.io/arch: [amd64]}`:       "/nodeSelector/kubernetes.io~1arch",
		`resources: {limits: {memory: [1]}}`:                "/resources/limits/memory",
		`podDisruptionBudget: {minAvailable: 1}`:            "'minAvailable'",
	} {
		switch _, err := renderChart(t, values); {
		case err == nil:
			t.Errorf("%s: no error", values)
		case !strings.Contains(err.Error(), names):
			t.Errorf("%s: the error does not name %s: %v", values, names, err)
		}
	}
}

// TestChart_Schema_ContainsEachSetting compares the chart with the settings of the manager.
func TestChart_Schema_ContainsEachSetting(t *testing.T) {
	t.Parallel()
	// The chart sets these itself, with its own values or in accordance with other objects.
	ours := []string{"ChartNamespace", "LeaderElect", "MetricsBindAddress", "HealthProbeBindAddress"}
	text, err := os.ReadFile(chartDir + "values.schema.json")
	require.NoError(t, err)
	type settings struct {
		Properties map[string]any `json:"properties"`
	}
	var schema struct {
		Properties struct {
			Settings  settings `json:"settings"`
			ConfigMap struct {
				Properties struct {
					Settings settings `json:"settings"`
				} `json:"properties"`
			} `json:"configMap"`
		} `json:"properties"`
	}
	require.NoError(t, json.Unmarshal(text, &schema))
	asFlag, live := map[string]any{}, map[string]any{}
	for _, s := range config.Settings() {
		var want any
		switch {
		case s.Type == "duration":
			want = map[string]any{"$ref": "#/$defs/duration"}
		case s.Type == "bool":
			want = map[string]any{"type": "boolean"}
		case s.Key == "OperandPullSecrets", s.Key == "OperandEgressPorts": // lists
			want = map[string]any{"type": "string"}
		default:
			want = map[string]any{"$ref": "#/$defs/name"}
		}
		if !slices.Contains(ours, s.Key) {
			asFlag[s.Key] = want
		}
		if !s.FlagOnly {
			live[s.Key] = want
		}
	}
	if diff := cmp.Diff(asFlag, schema.Properties.Settings.Properties); diff != "" {
		t.Errorf("settings: diff (-manager +schema)\n%s", diff)
	}
	if diff := cmp.Diff(live, schema.Properties.ConfigMap.Properties.Settings.Properties); diff != "" {
		t.Errorf("configMap.settings: diff (-manager +schema)\n%s", diff)
	}
}
