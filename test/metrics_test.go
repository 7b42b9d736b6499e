package test

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/docpage"
	"github.com/kyma-project/keb/test/internal/harness"
)

// metric is what docs/metrics.md says of a metric, and what a scrape shows of it.
type metric struct {
	Type   string
	Labels []string
}

// documentedMetrics are those of docs/metrics.md.
func documentedMetrics(t *testing.T) map[string]metric {
	t.Helper()
	page, err := docpage.Metrics("..")
	require.NoError(t, err)
	found := map[string]metric{}
	for _, m := range page {
		slices.Sort(m.Labels)
		found[m.Name] = metric{Type: m.Type, Labels: m.Labels}
	}
	return found
}

// Whatever has a name like a metric in the code is documented, and what is documented is in the code. Names are literals there.
func TestMetrics_CodeAndDocs_Match(t *testing.T) {
	t.Parallel()
	literal := regexp.MustCompile(`"(keb_[a-z0-9_]*[a-z0-9])"`)
	// The bucket of the stage memory and the Python package are no metrics.
	known := map[string]bool{"keb_stage": true, "keb_worker": true}
	where := map[string]string{}
	for _, dir := range []string{"../libs", "../services", "../cmd"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, found := range literal.FindAllStringSubmatch(string(source), -1) {
				where[found[1]] = path
			}
			return err
		})
		require.NoError(t, err)
	}
	documented := documentedMetrics(t)
	for name, path := range where {
		if _, ok := documented[name]; !ok && !known[name] {
			t.Errorf("%s of %s is not in docs/metrics.md", name, path)
		}
	}
	for name := range documented {
		if where[name] == "" && !strings.HasSuffix(name, "*") {
			t.Errorf("%s of docs/metrics.md is not in the code", name)
		}
	}
}

// scrape reads the metrics of all services of a system.
func scrape(t *testing.T, sys *harness.System) string {
	t.Helper()
	answer, err := sys.HTTP.Get("http://" + sys.OperatorAddr + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("GET /metrics: %s, %v", answer.Status, err)
	}
	return string(text)
}

// parsed are the metrics of a scrape.
func parsed(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	require.NoError(t, err)
	return families
}

// families returns the metrics of a scrape in the form of docs/metrics.md. It reports label values that must not be in a metric.
func families(t *testing.T, text string) map[string]metric {
	t.Helper()
	id := regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}`)
	metrics := map[string]metric{}
	for name, family := range parsed(t, text) {
		var labels []string
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
				// The largest global accounts are shown by their ids.
				if name != "keb_global_account_instances" && (id.MatchString(l.GetValue()) || len(l.GetValue()) > 100) {
					t.Errorf("%s has the label %s=%q", name, l.GetName(), l.GetValue())
				}
			}
		}
		slices.Sort(labels)
		metrics[name] = metric{Type: strings.ToLower(family.GetType().String()), Labels: append([]string{}, slices.Compact(labels)...)}
	}
	return metrics
}

// maxSeries bounds what one system shows, whatever happens in it.
const maxSeries = 8000

func TestMetrics_RunningSystem_MatchesDocs(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{})
	o := harness.Azure()
	created, err := sys.HTTP.Post("http://"+sys.OperatorAddr+"/webhooks", "application/json",
		strings.NewReader(`{"name": "closed-port", "url": "http://127.0.0.1:9/", "filter": {"kinds": ["started"]}}`))
	if err != nil || created.Body.Close() != nil || created.StatusCode != http.StatusOK {
		t.Fatalf("creating a webhook is answered %v, %v; want 200", created, err)
	}
	sys.Fault("edp", outage)
	id := sys.Provision(o)
	sys.Await(id, limit, "a retry", func(op *harness.Operation) bool { return slices.Contains(op.Outcomes("EDP_Registration"), "retry") })
	waits := fmt.Sprintf(`keb_operations_unfinished{plan=%q,state="in progress",type="provision"} 1`, "azure")
	testkit.Eventually(t, limit, "the operation that waits is shown", func() bool {
		text := scrape(t, sys)
		return strings.Contains(text, waits) && strings.Contains(text, "\nkeb_broker_operations{") && strings.Contains(text, "\nkeb_runtimes{")
	})
	sys.Fault("edp", healthy)
	sys.PollEnd(o, id, osb.StateSucceeded, limit)
	refused, err := sys.HTTP.Post("http://"+sys.OperatorAddr+"/operations/"+id+"/cancel", "application/json", nil)
	if err != nil || refused.Body.Close() != nil || refused.StatusCode != http.StatusConflict {
		t.Errorf("cancelling what has ended is answered %v, %v; want 409", refused, err)
	}

	documented := documentedMetrics(t)
	for _, name := range []string{"keb_limit", "keb_limit_in_use", "keb_limit_waiting", "keb_worker_ramp_replicas"} {
		delete(documented, name) // there are no limits and no ramps; the orchestrator's own tests have them
	}
	delete(documented, "go_sql_*")
	// keb up has no certificates; libs/tlsfiles and make e2e SUITE=tls have some.
	delete(documented, "keb_tls_certificate_not_after_timestamp_seconds")
	delete(documented, "keb_tls_certificate_not_before_timestamp_seconds")
	wanted := []string{
		strings.TrimSuffix(waits, "1") + "0",
		`keb_operations_finished_total{plan="azure",state="succeeded",type="provision"} 1`,
		`keb_operations_finished_total{plan="azure",state="failed",type="provision"} 0`,
		`keb_operator_actions_total{action="cancel",outcome="refused"} 1`,
		`keb_operator_requests_total{code="409",route="POST /operations/{id}/cancel"} 1`,
		`keb_worker_step_served{step="EDP_Registration",worker="edp"} 1`,
		`keb_instances{plan="azure"} 1`,
		`keb_bus_connected 1`,
		`keb_webhooks{state="failing"} 1`,
	}
	for name, m := range documented {
		wanted = append(wanted, "# TYPE "+name+" "+m.Type)
	}
	text := ""
	// Some are asked for now and then only, and none is shown of what does not answer in time.
	for _, want := range wanted {
		testkit.Eventually(t, limit, "the metrics say "+want, func() bool {
			if !strings.Contains(text, "\n"+want+"\n") {
				text = scrape(t, sys)
			}
			return strings.Contains(text, "\n"+want+"\n")
		})
	}
	got := families(t, text)
	if got["go_sql_open_connections"].Type != "gauge" {
		t.Error("the pools of connections are not shown")
	}
	for name := range got {
		if !strings.HasPrefix(name, "keb_") {
			delete(got, name)
		}
	}
	if diff := cmp.Diff(documented, got); diff != "" {
		t.Errorf("metrics (-documented +shown):\n%s", diff)
	}
	if series := strings.Count(text, "\nkeb_"); series > maxSeries {
		t.Errorf("%d series, want at most %d", series, maxSeries)
	}
	if !regexp.MustCompile(`\nkeb_steps_finished_total\{outcome="retry",reason="[A-Za-z_]+",step="EDP_Registration",type="provision",worker="edp"\} [1-9]`).MatchString(text) {
		t.Error("the reason of the retries is not shown")
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %v, %v", problems, err)
	}
}
