package dashboards

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	prometheusFile = repository + "deploy/prometheus/prometheus.yml"
	provisioning   = repository + "deploy/grafana/provisioning/"
)

// board is what the tests look at in a dashboard.
type board struct {
	file          string
	Title         string
	UID           string `json:"uid"`
	Description   string
	Tags          []string
	SchemaVersion int
	Templating    struct {
		List []variable
	}
	Annotations struct {
		List []struct{ Expr string }
	}
	Links []struct {
		Type string
		Tags []string
	}
	Panels []panel
}

type variable struct {
	Name, Type string
	Multi      bool
	Datasource *datasource
	Query      json.RawMessage // a text, or an object with the text
}

// text is the query of a variable.
func (v variable) text() string {
	var query struct{ Query string }
	var text string
	if json.Unmarshal(v.Query, &query) == nil {
		return query.Query
	}
	_ = json.Unmarshal(v.Query, &text) // then it is the text
	return text
}

type datasource struct {
	UID string `json:"uid"`
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Repeat                   string
	GridPos                  struct{ H, W, X, Y int }
	Datasource               *datasource
	Targets                  []target
	Options                  struct {
		Legend struct{ Placement string }
	}
	Transformations []struct {
		ID      string
		Options struct {
			IndexByName   map[string]int
			RenameByName  map[string]string
			ExcludeByName map[string]bool
		}
	}
	FieldConfig struct {
		Defaults struct {
			Unit       string
			Decimals   *int
			Min, Max   *float64
			Thresholds struct {
				Steps []struct {
					Color string
					Value *float64
				}
			}
			Custom struct {
				DrawStyle string
				Stacking  struct{ Mode string }
			}
		}
		Overrides []struct {
			Matcher struct {
				ID      string
				Options json.RawMessage // a text, for the matchers that the tests look at
			}
			Properties []struct {
				ID    string
				Value json.RawMessage
			}
		}
	}
}

// colour returns the fixed colour, or the one with shades, of the series with a name; empty if it has none.
func (p panel) colour(name string) string {
	for _, o := range p.FieldConfig.Overrides {
		var pattern string
		if o.Matcher.ID != "byRegexp" || json.Unmarshal(o.Matcher.Options, &pattern) != nil ||
			!regexp.MustCompile(strings.Trim(pattern, "/")).MatchString(name) {
			continue
		}
		for _, property := range o.Properties {
			var value struct{ FixedColor string }
			if property.ID == "color" && json.Unmarshal(property.Value, &value) == nil {
				return value.FixedColor
			}
		}
	}
	return ""
}

type target struct {
	Expr, RefID, LegendFormat, Format string
	Instant                           bool
	Datasource                        *datasource
}

func boards(t *testing.T) []board {
	t.Helper()
	files, err := filepath.Glob(chart + "dashboards/*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("%d dashboards: %v", len(files), err)
	}
	all := make([]board, len(files))
	for i, file := range files {
		all[i] = read(t, file)
	}
	return all
}

func read(t *testing.T, file string) board {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	b := board{file: filepath.Base(file)}
	require.NoErrorf(t, json.Unmarshal(text, &b), "%s", file)
	return b
}

func TestDashboards_Metrics_Exist(t *testing.T) {
	t.Parallel()
	c := known(t)
	for _, b := range boards(t) {
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				for _, problem := range c.check(q.Expr) {
					t.Errorf("%s: %s: %s", b.Title, p.Title, problem)
				}
			}
		}
		for _, a := range b.Annotations.List {
			for _, problem := range c.check(a.Expr) {
				t.Errorf("%s: annotation: %s", b.Title, problem)
			}
		}
		for _, v := range b.Templating.List {
			if v.Type != "query" {
				continue
			}
			found := labelValues.FindStringSubmatch(v.text())
			if found == nil {
				t.Errorf("%s: variable %s asks %s, want label_values(metric, label)", b.Title, v.Name, v.text())
				continue
			}
			for _, problem := range c.check("count by (" + found[2] + ") (max by (" + found[2] + ") (" + found[1] + "))") {
				if !strings.Contains(problem, "only ever grows") { // its labels are asked for, not its value
					t.Errorf("%s: variable %s: %s", b.Title, v.Name, problem)
				}
			}
		}
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

func TestDashboards_EachMetric_IsShown(t *testing.T) {
	t.Parallel()
	var shown strings.Builder
	for _, b := range boards(t) {
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				shown.WriteString(q.Expr + "\n")
			}
		}
	}
	for name := range documented(t) {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if strings.HasPrefix(name, "keb_") && !strings.Contains(shown.String(), base) {
			t.Errorf("no panel shows %s", base)
		}
	}
}

func TestDashboards_Panels_AreComplete(t *testing.T) {
	t.Parallel()
	runbooks := map[string]bool{}
	for _, a := range alerts(t) {
		runbooks[strings.ToLower(a.Alert)] = true
	}
	link := regexp.MustCompile(`\$\{runbooks\}#(\w+)`)
	for _, b := range boards(t) {
		ids, titles := map[int]bool{}, map[string]bool{}
		for i, p := range b.Panels {
			if ids[p.ID] || titles[p.Title] || p.Title == "" {
				t.Errorf("%s: panel %d %q: its id or title is missing or taken", b.Title, p.ID, p.Title)
			}
			ids[p.ID], titles[p.Title] = true, true
			for _, o := range b.Panels[:i] {
				g, h := p.GridPos, o.GridPos
				if g.X < h.X+h.W && h.X < g.X+g.W && g.Y < h.Y+h.H && h.Y < g.Y+g.H {
					t.Errorf("%s: %q lies on %q", b.Title, p.Title, o.Title)
				}
			}
			if p.GridPos.W == 0 || p.GridPos.H == 0 || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: %q does not fit: %+v", b.Title, p.Title, p.GridPos)
			}
			if p.Type == "row" {
				continue
			}
			if !slices.Contains([]string{"timeseries", "stat", "bargauge", "table"}, p.Type) {
				t.Errorf("%s: %q is a %s", b.Title, p.Title, p.Type)
			}
			if !slices.Contains([]string{"none", "short", "s", "percentunit", "bytes", "ops", "opm", "reqps", "mps"}, p.FieldConfig.Defaults.Unit) {
				t.Errorf("%s: %q has the unit %q", b.Title, p.Title, p.FieldConfig.Defaults.Unit)
			}
			if len(p.Description) < 20 || len(p.Targets) == 0 {
				t.Errorf("%s: %q: description %q, %d expressions", b.Title, p.Title, p.Description, len(p.Targets))
			}
			for _, found := range link.FindAllStringSubmatch(p.Description, -1) {
				if !runbooks[found[1]] {
					t.Errorf("%s: %q points to a runbook %q that does not exist", b.Title, p.Title, found[1])
				}
			}
			for _, q := range p.Targets {
				if p.Datasource == nil || q.Datasource == nil || p.Datasource.UID != "${datasource}" || q.Datasource.UID != "${datasource}" {
					t.Errorf("%s: %q does not take the data source that was chosen", b.Title, p.Title)
				}
				if p.Type == "timeseries" && (q.LegendFormat == "" || q.Instant) {
					t.Errorf("%s: %q needs a legend, and a range of time", b.Title, p.Title)
				}
			}
		}
	}
}

// TestDashboards_Throughput_IsFirst keeps the wish of the users of the original broker: throughput by type and by plan, over the full width.
func TestDashboards_Throughput_IsFirst(t *testing.T) {
	t.Parallel()
	b := read(t, chart+"dashboards/keb-operations.json")
	for i, label := range []string{"type", "plan"} {
		p := b.Panels[i+1] // after the row
		if p.Title != "Throughput by "+label || p.GridPos.W != 24 {
			t.Errorf("panel %d is %q with the width %d, want the throughput by %s with 24", i+1, p.Title, p.GridPos.W, label)
		}
		for _, metric := range []string{"keb_operations_started_total", "keb_operations_finished_total"} {
			if !slices.ContainsFunc(p.Targets, func(q target) bool {
				return strings.Contains(q.Expr, metric) && strings.Contains(q.Expr, "sum by ("+label+")")
			}) {
				t.Errorf("%s does not show %s", p.Title, metric)
			}
		}
	}
	for _, label := range []string{"type", "plan"} {
		if !slices.ContainsFunc(b.Panels[:5], func(p panel) bool { return p.Title == "Backlog by "+label }) {
			t.Errorf("the backlog by %s is not among the first panels", label)
		}
	}
}

// TestDashboards_States_HaveTheirColours wants the same colour for a state on every panel: green, red and grey for the ends of operations, red
// for what fails.
func TestDashboards_States_HaveTheirColours(t *testing.T) {
	t.Parallel()
	want := map[string]string{"succeeded": "green", "failed": "red", "cancelled": "#8E8E8E", "failing": "red", "no_answer": "dark-red", "in progress": "blue"}
	families := []struct {
		metric, label string
		states        []string
	}{
		{"keb_operations_finished_total", "state", []string{"succeeded", "failed", "cancelled"}},
		{"keb_orchestration_operations_finished_total", "state", []string{"succeeded", "failed"}},
		{"keb_orchestrations", "state", []string{"in progress"}},
		{"keb_operations_oldest_seconds", "state", []string{"in progress"}},
		{"keb_operations_waiting", "reason", []string{"failing", "no_answer"}},
		{"keb_step_operations", "condition", []string{"failing", "no_answer"}},
	}
	found := map[string]bool{}
	for _, b := range boards(t) {
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				for _, f := range families {
					if p.Type != "timeseries" || !strings.HasSuffix(q.LegendFormat, "{{"+f.label+"}}") || !strings.Contains(q.Expr, f.metric+"{") && !strings.Contains(q.Expr, f.metric+")") && !strings.Contains(q.Expr, f.metric+"[") {
						continue
					}
					found[f.metric] = true
					for _, state := range f.states {
						if got := p.colour(strings.ReplaceAll(q.LegendFormat, "{{"+f.label+"}}", state)); got != want[state] {
							t.Errorf("%s: %s: %s has the colour %q, want %q", b.Title, p.Title, state, got, want[state])
						}
					}
				}
			}
		}
	}
	for _, f := range families {
		if !found[f.metric] {
			t.Errorf("no panel shows %s by %s", f.metric, f.label)
		}
	}
}

// TestDashboards_ConsoleLinks_Exist wants every link to a view that the console has, with filters that its list of operations has.
func TestDashboards_ConsoleLinks_Exist(t *testing.T) {
	t.Parallel()
	const static = repository + "services/orchestrator/internal/console/static/"
	code := func(name string) string {
		text, err := os.ReadFile(static + name)
		require.NoError(t, err)
		return string(text)
	}
	views := regexp.MustCompile(`const views = \{ '': overview, (.*) \}`).FindStringSubmatch(code("main.js"))
	filters := regexp.MustCompile(`const filters = \[(.*)\]`).FindStringSubmatch(code("views/operations.js"))
	if views == nil || filters == nil {
		t.Fatal("the views of the console, or the filters of its operations, are not where this test looks")
	}
	link := regexp.MustCompile(`"\$\{console:raw\}/console/(\w*)(?:\?([^"]*))?"`)
	for _, b := range boards(t) {
		if b.UID == "keb-bus" {
			continue // the console shows nothing of it
		}
		text, err := os.ReadFile(chart + "dashboards/" + b.file)
		require.NoError(t, err)
		links := link.FindAllStringSubmatch(string(text), -1)
		if len(links) < 2 {
			t.Errorf("%s has %d links to the console", b.file, len(links))
		}
		for _, l := range links {
			if l[1] != "" && !slices.Contains(strings.Split(views[1], ", "), l[1]) {
				t.Errorf("%s: the console has no view %q", b.file, l[1])
			}
			if l[2] == "" {
				continue
			}
			for condition := range strings.SplitSeq(l[2], "&") {
				name, _, _ := strings.Cut(condition, "=")
				if l[1] != "operations" || !strings.Contains(filters[1], "'"+name+"'") {
					t.Errorf("%s: the view %q of the console has no filter %q", b.file, l[1], name)
				}
			}
		}
	}
}

func TestDashboards_Links_Exist(t *testing.T) {
	t.Parallel()
	uids := map[string]board{}
	for _, b := range boards(t) {
		if _, taken := uids[b.UID]; taken || b.UID+".json" != b.file {
			t.Errorf("%s: the uid %s is taken, or not the name of the file", b.file, b.UID)
		}
		uids[b.UID] = b
		// 41 is that of Grafana 12: older ones are migrated when they are opened, and look different.
		if b.SchemaVersion < 41 || b.Description == "" || !slices.Contains(b.Tags, "keb") {
			t.Errorf("%s: schema version %d, description %q, tags %v", b.file, b.SchemaVersion, b.Description, b.Tags)
		}
		if !slices.ContainsFunc(b.Links, func(l struct {
			Type string
			Tags []string
		},
		) bool {
			return l.Type == "dashboards" && slices.Equal(l.Tags, []string{"keb"})
		}) {
			t.Errorf("%s has no list of the other dashboards", b.file)
		}
	}
	used := regexp.MustCompile(`/d/([\w-]+)\?([^"]*)`)
	passed := regexp.MustCompile(`var-(\w+)=`)
	for _, b := range boards(t) {
		text, err := os.ReadFile(chart + "dashboards/" + b.file)
		require.NoError(t, err)
		for _, found := range used.FindAllSubmatch(text, -1) {
			to, ok := uids[string(found[1])]
			if !ok {
				t.Errorf("%s: a link to %s, which does not exist", b.file, found[1])
			}
			for _, v := range passed.FindAllSubmatch(found[2], -1) {
				if !slices.ContainsFunc(to.Templating.List, func(have variable) bool { return have.Name == string(v[1]) }) {
					t.Errorf("%s: a link gives %s the variable %s, which it does not have", b.file, found[1], v[1])
				}
			}
		}
		// A variable that is there is used, and the other way round.
		for _, v := range b.Templating.List {
			if n := bytes.Count(text, []byte("$"+v.Name)) + bytes.Count(text, []byte("${"+v.Name)); n == 0 {
				t.Errorf("%s: nothing uses the variable %s", b.file, v.Name)
			}
		}
	}
}

func TestDashboards_Format_IsUniform(t *testing.T) {
	t.Parallel()
	for _, b := range boards(t) {
		text, err := os.ReadFile(chart + "dashboards/" + b.file)
		require.NoError(t, err)
		var want bytes.Buffer
		require.NoError(t, json.Indent(&want, bytes.TrimSpace(text), "", "  "))
		want.WriteByte('\n')
		if !bytes.Equal(want.Bytes(), text) {
			t.Errorf("%s: indent it with two spaces, so that changes can be read", b.file)
		}
	}
}

func TestGrafana_DataSource_MatchesPrometheus(t *testing.T) {
	t.Parallel()
	var config struct {
		Global struct {
			ScrapeInterval string `yaml:"scrape_interval"`
		}
	}
	var sources struct {
		Datasources []struct {
			Type     string
			URL      string
			JSONData struct {
				TimeInterval string `yaml:"timeInterval"`
			} `yaml:"jsonData"`
		}
	}
	var providers struct {
		Providers []struct {
			Type    string
			Options struct{ Path string }
		}
	}
	for name, into := range map[string]any{
		prometheusFile: &config, provisioning + "datasources/keb.yaml": &sources, provisioning + "dashboards/keb.yaml": &providers,
	} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoErrorf(t, yaml.Unmarshal(text, into), "%s", name)
	}
	if len(sources.Datasources) != 1 || sources.Datasources[0].Type != "prometheus" || sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("data sources: %+v", sources.Datasources)
	}
	if got, want := sources.Datasources[0].JSONData.TimeInterval, config.Global.ScrapeInterval; got != want || want == "" {
		t.Errorf("Grafana takes rates as if it were scraped every %q, Prometheus scrapes every %q", got, want)
	}
	if len(providers.Providers) != 1 || providers.Providers[0].Options.Path != "/etc/grafana/dashboards" {
		t.Errorf("providers: %+v", providers.Providers)
	}
}

func TestPrometheus_ComposeServices_AreScraped(t *testing.T) {
	t.Parallel()
	var config struct {
		ScrapeConfigs []struct {
			DNS []struct {
				Names []string
				Port  int
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	var compose struct {
		Services map[string]struct {
			Environment any // a map, where metrics are served
		}
	}
	for name, into := range map[string]any{prometheusFile: &config, repository + "docker-compose.yml": &compose} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoErrorf(t, yaml.Unmarshal(text, into), "%s", name)
	}
	var want []string
	for name, service := range compose.Services {
		environment, _ := service.Environment.(map[string]any)
		if environment["KEB_METRICS_ADDR"] == ":9090" {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	sd := config.ScrapeConfigs[0].DNS[0]
	if sd.Port != 9090 || !slices.Equal(sd.Names, want) {
		t.Errorf("Prometheus scrapes port %d of %v, want 9090 of %v", sd.Port, sd.Names, want)
	}
}
