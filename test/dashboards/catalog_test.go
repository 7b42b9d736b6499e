package dashboards

import (
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

const (
	repository  = "../../"
	chart       = repository + "deploy/helm/keb/"
	metricsPage = repository + "docs/metrics.md"
)

// A metric as docs/metrics.md describes it.
type metric struct {
	kind   string // counter, gauge or histogram
	labels map[string]bool
	// shared tells that every replica of a service has the same value, so that adding them up is wrong.
	shared bool
}

// catalog is what expressions may ask for: metrics by the name of their series.
type catalog map[string]metric

// scraped are the labels that a scrape adds.
var scraped = []string{"job", "instance", "namespace", "pod"}

// documented reads the tables of docs/metrics.md, and adds what the client library has in every process, what Prometheus makes itself,
// and what the rules record.
func documented(t *testing.T) catalog {
	t.Helper()
	c := catalog{}
	text, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile("`([^`]+)`")
	section := ""
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(title)
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || !strings.HasPrefix(strings.TrimSpace(cells[0]), "`keb_") {
			continue
		}
		kind := strings.TrimSpace(cells[1])
		meaning := cells[3]
		var labels []string
		for _, label := range words.FindAllStringSubmatch(cells[2], -1) {
			labels = append(labels, label[1])
		}
		for _, name := range words.FindAllStringSubmatch(cells[0], -1) {
			// What a worker or a process tells of itself is its own; what an orchestrator or the broker reads from the database or the
			// bus is the same on every replica.
			own := strings.Contains(meaning, "(worker)") || strings.Contains(meaning, "this process") || strings.Contains(meaning, " last ") || strings.Contains(meaning, "that reading")
			c.add(t, name[1], metric{kind: kind, shared: kind == "gauge" && !own && section != ""}, labels...)
		}
	}
	if len(c) < 50 {
		t.Fatalf("%s has only %d series", metricsPage, len(c))
	}
	c.addLibrary(t)
	c.add(t, "ALERTS", metric{kind: "gauge"}, "alertname", "alertstate", "severity", "worker", "step", "type", "stream", "consumer", "system", "db_name", "variable")
	return c
}

func (c catalog) add(t *testing.T, name string, m metric, labels ...string) {
	t.Helper()
	m.labels = map[string]bool{}
	for _, label := range append(labels, scraped...) {
		m.labels[label] = true
	}
	names := []string{name}
	switch m.kind {
	case "counter", "gauge":
	case "histogram":
		m.labels["le"] = true
		names = []string{name + "_bucket", name + "_sum", name + "_count"}
	default:
		t.Errorf("%s is a %q, want counter, gauge or histogram", name, m.kind)
	}
	for _, name := range names {
		if _, ok := c[name]; ok {
			t.Errorf("%s is there twice", name)
		}
		c[name] = m
	}
}

// addLibrary adds what the collectors of the client library export, by looking at them.
func (c catalog) addLibrary(t *testing.T) {
	t.Helper()
	r := prometheus.NewRegistry()
	for _, collector := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewDBStatsCollector(&sql.DB{}, "keb"),
	} {
		if err := r.Register(collector); err != nil {
			t.Fatal(err)
		}
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		kind := strings.ToLower(f.GetType().String())
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if kind != "summary" {
			c.add(t, f.GetName(), metric{kind: kind}, labels...)
			continue
		}
		c.add(t, f.GetName(), metric{kind: "gauge"}, "quantile")
		c.add(t, f.GetName()+"_sum", metric{kind: "counter"})
		c.add(t, f.GetName()+"_count", metric{kind: "counter"})
	}
}
