package charts_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

func TestMonitoring_Alerts_AreShipped(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(kebDir + "alerts/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files with alerts, %v", len(files), err)
	}
	var want ruleFile
	for _, file := range files {
		var f ruleFile
		require.NoError(t, yaml.UnmarshalStrict([]byte(readFile(t, file)), &f))
		want.Groups = append(want.Groups, f.Groups...)
	}
	first := ""
	for _, g := range want.Groups {
		for i := range g.Rules {
			if g.Rules[i].Alert == "" {
				continue
			}
			if first == "" {
				first = g.Rules[i].Alert
			}
			g.Rules[i].Annotations["runbook_url"] = "https://github.com/kyma-project/keb/blob/main/" + g.Rules[i].Annotations["runbook_url"]
		}
	}
	got := kubetest.One[*prometheusRule](t, rendered(t, everything), "keb").Spec
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diff (-files +chart)\n%s", diff)
	}
	fewer := kubetest.One[*prometheusRule](t, rendered(t, merged(t, everything, "prometheusRule: {disabled: ["+first+"], runbookBase: 'https://wiki/'}")), "keb").Spec
	text, err := yaml.Marshal(fewer)
	require.NoError(t, err)
	if strings.Contains(string(text), "alert: "+first+"\n") || !strings.Contains(string(text), "runbook_url: https://wiki/docs/runbooks/") {
		t.Errorf("%s is disabled, the runbooks are in a wiki:\n%s", first, text)
	}
}

func TestMonitoring_Rules_AreValid(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool: install Prometheus, for example with `apt-get install prometheus`")
	}
	text, err := yaml.Marshal(kubetest.One[*prometheusRule](t, rendered(t, everything), "keb").Spec)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestMonitoring_Dashboards_AreShipped(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(kebDir + "dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d dashboards, %v", len(files), err)
	}
	shipped := map[string]string{}
	for _, c := range kubetest.All[*corev1.ConfigMap](rendered(t, everything)) {
		if c.Labels["grafana_dashboard"] != "1" {
			continue
		}
		maps.Copy(shipped, c.Data)
	}
	if len(shipped) != len(files) {
		t.Errorf("%d dashboards in ConfigMaps, %d files", len(shipped), len(files))
	}
	for _, file := range files {
		// The links lead to the console of the installation.
		if want := strings.ReplaceAll(readFile(t, file), "http://localhost:8081", "https://console.keb.example"); shipped[filepath.Base(file)] != want {
			t.Errorf("the chart ships another %s", filepath.Base(file))
		}
	}
}
