package dashboards

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	ruleFile  = chart + "alerts/keb.yaml"
	ruleTests = repository + "deploy/prometheus/tests/"
	runbook   = repository + "docs/runbooks/keb.md"
)

// A rule is an alert, or what is recorded.
type rule struct {
	Alert, Record, Expr, For string
	Labels, Annotations      map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(ruleFile)
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Name, Interval string
			Rules          []rule
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func alerts(t *testing.T) []rule {
	t.Helper()
	return slices.DeleteFunc(rules(t), func(r rule) bool { return r.Alert == "" })
}

// known is the catalog with what the rules record.
func known(t *testing.T) catalog {
	t.Helper()
	c := documented(t)
	by := regexp.MustCompile(`sum by \(([^)]*)\)`)
	for _, r := range rules(t) {
		if r.Record == "" {
			continue
		}
		var labels []string
		if found := by.FindStringSubmatch(r.Expr); found != nil {
			labels = strings.Split(found[1], ", ")
		}
		kind := "gauge"
		if r.sumsCounters() {
			kind = "counter"
		}
		c.add(t, r.Record, metric{kind: kind}, labels...)
	}
	return c
}

// sumsCounters reports whether a rule records the sum of counters of one process, which is a counter.
func (r rule) sumsCounters() bool { return strings.HasSuffix(r.Record, ":sum") }

func TestRules_Metrics_Exist(t *testing.T) {
	t.Parallel()
	c := known(t)
	for _, r := range rules(t) {
		for _, problem := range c.check(r.Expr) {
			if r.sumsCounters() && strings.Contains(problem, "only ever grows") {
				continue
			}
			t.Errorf("%s%s: %s", r.Alert, r.Record, problem)
		}
	}
}

func TestRules_Records_AreUsed(t *testing.T) {
	t.Parallel()
	var used strings.Builder
	for _, r := range rules(t) {
		used.WriteString(r.Expr + "\n")
	}
	for _, b := range boards(t) {
		for _, p := range b.Panels {
			for _, target := range p.Targets {
				used.WriteString(target.Expr + "\n")
			}
		}
	}
	for _, r := range rules(t) {
		if r.Record != "" && !strings.Contains(used.String(), r.Record) {
			t.Errorf("no alert or dashboard uses %s", r.Record)
		}
	}
}

func TestAlerts_Annotations_AreComplete(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, a := range alerts(t) {
		if names[a.Alert] || !strings.HasPrefix(a.Alert, "Keb") {
			t.Errorf("%s: its name is taken, or does not begin with Keb", a.Alert)
		}
		names[a.Alert] = true
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s: the severity is %q", a.Alert, a.Labels["severity"])
		}
		for _, annotation := range []string{"summary", "description"} {
			if s := a.Annotations[annotation]; !strings.HasSuffix(s, ".") {
				t.Errorf("%s: the %s is no sentence: %q", a.Alert, annotation, s)
			}
		}
		if want := "docs/runbooks/keb.md#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s: the runbook is %q, want %q", a.Alert, a.Annotations["runbook_url"], want)
		}
		for _, label := range []string{"worker", "step", "type", "stream", "consumer", "system", "db_name", "variable"} {
			grouped := regexp.MustCompile(`^\s*\(*(sum|max|min) by \([^)]*\b` + label + `\b`).MatchString(a.Expr)
			if grouped && !strings.Contains(a.Annotations["summary"], "$labels."+label) {
				t.Errorf("%s: its summary does not say which %s", a.Alert, label)
			}
		}
	}
}

func TestAlerts_Runbooks_Match(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(runbook)
	require.NoError(t, err)
	var names, sections []string
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
	}
	parts := regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatchIndex(string(text), -1)
	for i, at := range parts {
		end := len(text)
		if i+1 < len(parts) {
			end = parts[i+1][0]
		}
		name, section := string(text[at[2]:at[3]]), string(text[at[1]:end])
		sections = append(sections, name)
		for _, part := range []string{"**What it means.**", "**Impact.**", "**Look.**", "**Do.**"} {
			if !strings.Contains(section, part) {
				t.Errorf("the runbook of %s has no part %s", name, part)
			}
		}
	}
	if diff := cmp.Diff(names, sections); diff != "" {
		t.Errorf("sections of the runbook: diff (-alerts +sections)\n%s", diff)
	}
}

func TestAlerts_UnitTests_CoverBothStates(t *testing.T) {
	t.Parallel()
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, name := range testFiles(t) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		var file struct {
			Tests []struct {
				Checks []struct {
					Name     string `yaml:"alertname"`
					Expected []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		require.NoError(t, yaml.Unmarshal(text, &file))
		for _, test := range file.Tests {
			for _, c := range test.Checks {
				if len(c.Expected) > 0 {
					fires[c.Name] = true
				} else {
					silent[c.Name] = true
				}
			}
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s: tested to fire: %v, not to fire: %v", a.Alert, fires[a.Alert], silent[a.Alert])
		}
	}
}

func testFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(ruleTests + "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests of the rules in %s: %v", ruleTests, err)
	}
	return files
}

func TestAlerts_UnitTests_Pass(t *testing.T) {
	t.Parallel()
	run(t, append([]string{"test", "rules"}, testFiles(t)...)...)
}

func TestPrometheus_Configuration_IsValid(t *testing.T) {
	t.Parallel()
	run(t, "check", "rules", ruleFile)
	run(t, "check", "config", "--syntax-only", prometheusFile)
}

// run runs promtool.
func run(t *testing.T, args ...string) {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool: install Prometheus, for example with `apt-get install prometheus`")
	}
	if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
