package dashboards

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

// server is a Prometheus of its own, with the settings of deploy/prometheus/prometheus.yml but for whom it scrapes.
type server struct {
	t      testing.TB
	addr   string
	client *http.Client
	scrape time.Duration
	start  time.Time
}

// startPrometheus scrapes the targets, by job, and evaluates the rules of a file.
func startPrometheus(t testing.TB, rules string, targets map[string]string) *server {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatal("no prometheus: install it, for example with `apt-get install prometheus`")
	}
	text, err := os.ReadFile(prometheusFile)
	require.NoError(t, err)
	var config map[string]any
	require.NoError(t, yaml.Unmarshal(text, &config))
	var global struct {
		Global struct {
			ScrapeInterval time.Duration `yaml:"scrape_interval"`
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &global))
	ruleFile, err := filepath.Abs(rules)
	require.NoError(t, err)
	config["rule_files"] = []string{ruleFile}
	var jobs []any
	for job, target := range targets {
		jobs = append(jobs, map[string]any{"job_name": job, "static_configs": []any{map[string]any{"targets": []string{target}}}})
	}
	config["scrape_configs"] = jobs
	text, err = yaml.Marshal(config)
	require.NoError(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s := &server{
		t: t, addr: testkit.Addr(t), client: &http.Client{Timeout: 30 * time.Second, Transport: transport},
		scrape: global.Global.ScrapeInterval, start: time.Now(),
	}
	process := harness.Spawn(t, program, nil, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+s.addr)
	testkit.Eventually(t, time.Minute, "a scrape of everything", func() bool {
		if process.Ended() {
			t.Fatalf("prometheus ended:\n%s", process.Output())
		}
		got, err := s.query("sum(up)")
		return err == nil && len(got) == 1 && got[0].last() == float64(len(targets))
	})
	return s
}

// awaitScrape waits until everything that is there now has been scraped.
func (s *server) awaitScrape() {
	s.t.Helper()
	now := float64(time.Now().UnixMilli()) / 1000
	testkit.Eventually(s.t, time.Minute, "a scrape", func() bool {
		got, err := s.query("min(timestamp(up))")
		return err == nil && len(got) == 1 && got[0].last() > now
	})
}

// result is a series of an answer.
type result struct {
	Metric map[string]string
	Value  []any
	Values [][]any
}

// numbers are the values of the series, without those that are none.
func (r result) numbers() []float64 {
	var numbers []float64
	for _, v := range append(r.Values, r.Value) {
		if len(v) != 2 {
			continue
		}
		text, _ := v[1].(string) // a value is [time, "text"]
		if n, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(n) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

func (r result) last() float64 {
	if all := r.numbers(); len(all) > 0 {
		return all[len(all)-1]
	}
	return math.NaN()
}

// query evaluates an expression now.
func (s *server) query(expr string) ([]result, error) {
	return s.get("/api/v1/query", url.Values{"query": {expr}})
}

// queryRange evaluates an expression at each scrape since the start, as a graph does.
func (s *server) queryRange(expr string) ([]result, error) {
	return s.get("/api/v1/query_range", url.Values{
		"query": {expr}, "start": {s.start.Format(time.RFC3339)}, "end": {time.Now().Format(time.RFC3339)}, "step": {s.scrape.String()},
	})
}

func (s *server) get(path string, values url.Values) ([]result, error) {
	var data struct{ Result []result }
	err := s.api(path+"?"+values.Encode(), &data)
	return data.Result, err
}

func (s *server) api(path string, into any) error {
	response, err := s.client.Get("http://" + s.addr + path)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("status %d: %w", response.StatusCode, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("status %d: %s", response.StatusCode, answer.Error)
	}
	return nil
}

// variables are what Grafana puts for its own variables: the rate interval is four scrapes.
func (s *server) variables(more map[string]string) map[string]string {
	all := map[string]string{"$__rate_interval": (4 * s.scrape).String(), "$__range": "1h"}
	maps.Copy(all, more)
	return all
}

// shows reports whether a panel has data, with one of the sets of variables: for each of its expressions some number.
func (s *server) shows(p panel, choices []map[string]string) (missing []string) {
	for _, q := range p.Targets {
		found := false
		for _, choice := range choices {
			expr := substitute(q.Expr, s.variables(choice))
			ask := s.queryRange
			if q.Instant {
				ask = s.query
			}
			got, err := ask(expr)
			if err != nil {
				return []string{err.Error() + ": " + expr}
			}
			for _, series := range got {
				found = found || len(series.numbers()) > 0
			}
			if found {
				break
			}
		}
		if !found {
			missing = append(missing, q.Expr)
		}
	}
	return missing
}

// evaluated is what Prometheus says of its rules.
func (s *server) evaluated() (names []string, problems []string) {
	s.t.Helper()
	var answer struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	require.NoError(s.t, s.api("/api/v1/rules", &answer))
	for _, g := range answer.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Name)
			if r.Health != "ok" {
				problems = append(problems, strings.TrimSpace(r.Name+" is "+r.Health+": "+r.LastError))
			}
		}
	}
	return names, problems
}
