package dashboards

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/test/internal/docpage"
)

const (
	repository = "../../"
	chart      = repository + "deploy/helm/keb/"
)

// A metric as docs/metrics.md describes it.
type metric struct {
	kind   string // counter, gauge or histogram
	labels map[string]bool
	// shared reports that all replicas of a service have the same value, which must not be summed.
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
	page, err := docpage.Metrics(repository)
	require.NoError(t, err)
	for _, m := range page {
		if !strings.HasPrefix(m.Name, "keb_") {
			continue
		}
		// Gauges of a worker or a process differ between replicas. Gauges that are read from the database or the bus are equal on all.
		own := strings.Contains(m.Meaning, "(worker)") || strings.Contains(m.Meaning, "this process") || strings.Contains(m.Meaning, " last ") || strings.Contains(m.Meaning, "that reading")
		c.add(t, m.Name, metric{kind: m.Type, shared: m.Type == "gauge" && !own}, m.Labels...)
	}
	if len(c) < 50 {
		t.Fatalf("docs/metrics.md has only %d series", len(c))
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
			t.Errorf("%s is duplicated", name)
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
		require.NoError(t, r.Register(collector))
	}
	families, err := r.Gather()
	require.NoError(t, err)
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
