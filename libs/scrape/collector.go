package scrape

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	defaultAge   = 5 * time.Second
	defaultLimit = 2 * time.Second
	// share limits the time that a source spends on readings to a twentieth. After a failure the source is read earlier, because it may have
	// recovered.
	share, shareOfFailing = 20, 4
	// maxAge is the maximum age of values of a slow source.
	maxAge = 30 * time.Second
	// maxRemembered is the maximum number of label combinations that a gauge remembers.
	maxRemembered = 1000
)

// Config describes a source.
type Config struct {
	// Source is the name of the source in the metrics about its readings.
	Source string
	// Age is the maximum age of values; zero means five seconds. A slow source is read less often, see the package.
	Age time.Duration
	// Limit is the timeout of a reading; zero means two seconds.
	Limit time.Duration
	// Log and Now are optional.
	Log *slog.Logger
	Now func() time.Time
}

// Gauge is a metric of a source.
type Gauge struct {
	desc     *prometheus.Desc
	labels   int
	remember bool
}

// NewGauge creates a gauge. All its labels are variable.
func NewGauge(name, help string, labels ...string) *Gauge {
	return &Gauge{desc: prometheus.NewDesc(name, help, labels, nil), labels: len(labels)}
}

// Remembered makes a gauge report 0 for a label combination that previously had a value.
func (g *Gauge) Remembered() *Gauge {
	g.remember = true
	return g
}

// Sample holds the values of one reading.
type Sample struct{ values map[*Gauge]map[string]float64 }

// separator separates the labels of a key. It does not occur in UTF-8 text.
const separator = "\xff"

// Add adds to the value of a gauge for these labels. A missing value counts as 0.
func (s *Sample) Add(g *Gauge, value float64, labels ...string) {
	s.of(g)[key(labels)] += value
}

// Max raises the value of a gauge for these labels to at least value.
func (s *Sample) Max(g *Gauge, value float64, labels ...string) {
	values, k := s.of(g), key(labels)
	if old, ok := values[k]; !ok || value > old {
		values[k] = value
	}
}

// key joins labels. It replaces invalid UTF-8 with question marks.
func key(labels []string) string {
	texts := make([]string, len(labels))
	for i, l := range labels {
		texts[i] = strings.ToValidUTF8(l, "?")
	}
	return strings.Join(texts, separator)
}

func (s *Sample) of(g *Gauge) map[string]float64 {
	values := s.values[g]
	if values == nil {
		values = map[string]float64{}
		s.values[g] = values
	}
	return values
}

// Collector reads a source as a prometheus.Collector. After a failed reading it reports no values instead of old ones, and sets
// keb_gauges_fresh to 0.
type Collector struct {
	cfg    Config
	read   func(ctx context.Context, s *Sample) error
	gauges []*Gauge
	fresh  *prometheus.Desc
	took   *prometheus.Desc

	mu         sync.Mutex
	until      time.Time
	metrics    []prometheus.Metric
	remembered map[*Gauge]map[string]struct{}
}

// New creates a Collector of the gauges, whose values read sets.
func New(cfg Config, read func(ctx context.Context, s *Sample) error, gauges ...*Gauge) *Collector {
	if cfg.Age == 0 {
		cfg.Age = defaultAge
	}
	if cfg.Limit == 0 {
		cfg.Limit = defaultLimit
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	about := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, nil, prometheus.Labels{"source": cfg.Source})
	}
	return &Collector{
		cfg: cfg, read: read, gauges: gauges, remembered: map[*Gauge]map[string]struct{}{},
		fresh: about("keb_gauges_fresh", "1 when the last reading of the gauges of a source has succeeded."),
		took:  about("keb_gauges_read_seconds", "Time that the last reading of the gauges of a source took."),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range c.gauges {
		ch <- g.desc
	}
	ch <- c.fresh
	ch <- c.took
}

// Collect implements prometheus.Collector. Scrapes during a reading wait for that reading.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cfg.Now().Before(c.until) {
		c.refresh()
	}
	for _, m := range c.metrics {
		ch <- m
	}
}

func (c *Collector) refresh() {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Limit)
	defer cancel()
	start := c.cfg.Now()
	sample := &Sample{values: map[*Gauge]map[string]float64{}}
	err := c.read(ctx, sample)
	end := c.cfg.Now()
	took := end.Sub(start)
	c.metrics = c.metrics[:0]
	fresh, rest := 1.0, share*took
	if err != nil {
		fresh, rest = 0, shareOfFailing*took
		c.cfg.Log.Warn("gauges not read", "gauges", c.cfg.Source, "took", took, "err", err)
	} else {
		for _, g := range c.gauges {
			c.add(g, sample.values[g])
		}
	}
	c.until = end.Add(max(c.cfg.Age, min(rest, maxAge)))
	c.metrics = append(c.metrics,
		prometheus.MustNewConstMetric(c.fresh, prometheus.GaugeValue, fresh),
		prometheus.MustNewConstMetric(c.took, prometheus.GaugeValue, took.Seconds()))
}

// add creates the metrics of one gauge.
func (c *Collector) add(g *Gauge, values map[string]float64) {
	for key, value := range values {
		c.metrics = append(c.metrics, g.metric(key, value))
	}
	if !g.remember {
		return
	}
	known := c.remembered[g]
	if known == nil {
		known = map[string]struct{}{}
		c.remembered[g] = known
	}
	for key := range known {
		if _, ok := values[key]; !ok {
			c.metrics = append(c.metrics, g.metric(key, 0))
		}
	}
	for key := range values {
		if len(known) < maxRemembered {
			known[key] = struct{}{}
		}
	}
}

func (g *Gauge) metric(key string, value float64) prometheus.Metric {
	var labels []string
	if g.labels > 0 {
		labels = strings.Split(key, separator)
	}
	m, err := prometheus.NewConstMetric(g.desc, prometheus.GaugeValue, value, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(g.desc, err)
	}
	return m
}
