package deploy_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/services/btp-manager/internal/metric"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

const (
	alertFile  = chartDir + "alerts/btp-manager.yaml"
	alertTests = chartDir + "alerts/btp-manager_test.yaml"
	runbook    = repository + "docs/runbooks/btp-manager.md"
)

// series are the exported metrics of the manager: by name, then by label, the values.
type series map[string]map[string][]string

func exported(t *testing.T) series {
	t.Helper()
	r := prometheus.NewRegistry()
	if _, err := metric.New(metric.Config{}, r); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	require.NoError(t, err)
	known := series{}
	for _, f := range families {
		values := map[string][]string{"namespace": nil, "pod": nil} // the scrape adds these
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				values[l.GetName()] = append(values[l.GetName()], l.GetValue())
			}
		}
		if f.GetType() != dto.MetricType_HISTOGRAM {
			known[f.GetName()] = values
			continue
		}
		values["le"] = nil
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			known[f.GetName()+part] = values
		}
	}
	return known
}

// check validates an expression: it must parse, and use only exported metrics.
func (s series) check(t *testing.T, where, expr string) {
	t.Helper()
	for variable, value := range map[string]string{"$__rate_interval": "5m", "$namespace": "kyma-system"} {
		expr = strings.ReplaceAll(expr, variable, value)
	}
	parsed, err := parser.ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v\n%s", where, err, expr)
		return
	}
	exported := map[string][]string{}
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		vector, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		known, ok := s[vector.Name]
		if !ok {
			t.Errorf("%s: %s is not exported", where, vector.Name)
			return nil
		}
		maps.Copy(exported, known)
		for _, m := range vector.LabelMatchers {
			values, ok := known[m.Name]
			switch {
			case m.Name == model.MetricNameLabel:
			case !ok:
				t.Errorf("%s: %s has no label %s", where, vector.Name, m.Name)
			case values != nil && !slices.ContainsFunc(values, m.Matches):
				t.Errorf("%s: no %s has %s", where, vector.Name, m)
			case m.Type == labels.MatchNotEqual && !slices.Contains(values, m.Value):
				t.Errorf("%s: %s leaves out %s, which %s never has", where, vector, m, m.Name)
			}
		}
		return nil
	})
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, label := range a.Grouping {
				if _, ok := exported[label]; !ok {
					t.Errorf("%s: grouped by %s, which nothing in it has", where, label)
				}
			}
		}
		return nil
	})
}

func alerts(t *testing.T) []alertRule {
	t.Helper()
	text, err := os.ReadFile(alertFile)
	require.NoError(t, err)
	var file ruleFile
	require.NoError(t, yaml.UnmarshalStrict(text, &file))
	var rules []alertRule
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	if len(rules) == 0 {
		t.Fatal("no alerts")
	}
	return rules
}

func TestAlerts_Metrics_Exist(t *testing.T) {
	t.Parallel()
	known := exported(t)
	for _, a := range alerts(t) {
		known.check(t, a.Alert, a.Expr)
	}
}

func TestAlerts_Each_HasDescriptionAndRunbook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(runbook)
	require.NoError(t, err)
	var names []string
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s: the severity is %q", a.Alert, a.Labels["severity"])
		}
		for _, annotation := range []string{"summary", "description"} {
			if s := a.Annotations[annotation]; !strings.HasSuffix(s, ".") {
				t.Errorf("%s: the %s is no sentence: %q", a.Alert, annotation, s)
			}
		}
		if want := "docs/runbooks/btp-manager.md#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s: the runbook is %q, want %q", a.Alert, a.Annotations["runbook_url"], want)
		}
	}
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(string(text), -1) {
		sections = append(sections, m[1])
	}
	if diff := cmp.Diff(names, sections); diff != "" {
		t.Errorf("sections of the runbook: diff (-alerts +sections)\n%s", diff)
	}
}

func TestAlerts_Each_HasBothTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(alertTests)
	require.NoError(t, err)
	var file struct {
		Tests []struct {
			Checks []struct {
				Name     string `json:"alertname"`
				Expected []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.Checks {
			if len(c.Expected) > 0 {
				fires[c.Name] = true
			} else {
				silent[c.Name] = true
			}
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s: tested to fire: %v, not to fire: %v", a.Alert, fires[a.Alert], silent[a.Alert])
		}
	}
}

func TestAlerts_Rules_FireAsExpected(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool: install Prometheus, for example with `apt-get install prometheus`")
	}
	for _, args := range [][]string{{"check", "rules", alertFile}, {"test", "rules", alertTests}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func TestChart_Alerts_AreIncluded(t *testing.T) {
	t.Parallel()
	want := alerts(t)
	for i := range want {
		want[i].Annotations["runbook_url"] = "https://github.com/kyma-project/keb/blob/main/" + want[i].Annotations["runbook_url"]
	}
	got := kubetest.One[*prometheusRule](t, rendered(t, everything), "btp-manager")
	if diff := cmp.Diff(want, got.Spec.Groups[0].Rules); diff != "" {
		t.Errorf("diff (-file +chart)\n%s", diff)
	}
	fewer := kubetest.One[*prometheusRule](t, rendered(t, "prometheusRule: {enabled: true, disabled: [BtpOperatorWaitsForUser], runbookBase: 'https://wiki/'}"), "btp-manager")
	names := func(rules []alertRule) (names []string) {
		for _, r := range rules {
			names = append(names, r.Alert)
		}
		return names
	}
	left := slices.DeleteFunc(names(want), func(name string) bool { return name == "BtpOperatorWaitsForUser" })
	if diff := cmp.Diff(left, names(fewer.Spec.Groups[0].Rules)); diff != "" {
		t.Errorf("one alert left out: diff (-want +got)\n%s", diff)
	}
	if u := fewer.Spec.Groups[0].Rules[0].Annotations["runbook_url"]; u != "https://wiki/docs/runbooks/btp-manager.md#btpmanagerdown" {
		t.Errorf("the runbook is %s", u)
	}
}

// dashboard is the tested part of the dashboard.
type dashboard struct {
	Title  string  `json:"title"`
	UID    string  `json:"uid"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

func TestDashboard_EachMetric_HasPanel(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(chartDir + "dashboards/btp-manager.json")
	require.NoError(t, err)
	var board dashboard
	require.NoError(t, json.Unmarshal(text, &board))
	known := exported(t)
	ids, titles := map[int]bool{}, map[string]bool{}
	shown := ""
	for _, p := range board.Panels {
		if ids[p.ID] || titles[p.Title] || p.Title == "" {
			t.Errorf("panel %d %q: its id or title is missing or taken", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		if p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q does not fit: %+v", p.Title, p.GridPos)
		}
		if p.Type == "row" {
			continue
		}
		if p.FieldConfig.Defaults.Unit == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q: unit %q, description %q, %d expressions", p.Title, p.FieldConfig.Defaults.Unit, p.Description, len(p.Targets))
		}
		for _, target := range p.Targets {
			known.check(t, p.Title, target.Expr)
			shown += target.Expr + "\n"
		}
	}
	for name := range known {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if !strings.Contains(shown, base) {
			t.Errorf("no panel shows %s", base)
		}
	}
	if m := configMapData(t, rendered(t, everything), "btp-manager-dashboard"); m["btp-manager.json"] != string(text) {
		t.Error("the chart ships another dashboard than the file")
	}
}
