// Package metric defines the metrics of BTP Manager. Every name begins with "btpmanager_", every label has a fixed set of values, and
// every combination exists from the start, so that rates are known before the first failure.
package metric

import (
	"errors"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/scrape"
)

// Config contains the labels of build_info.
type Config struct {
	// Version is the version of BTP Manager; empty counts as "unknown".
	Version string
	// ChartVersion is the version of the operand's chart in BTP Manager; empty counts as "unknown".
	ChartVersion string
}

// Metrics are the metrics of one BTP Manager. It is safe for concurrent use.
type Metrics struct {
	leader                prometheus.Gauge
	btpOperators, since   *prometheus.GaugeVec
	reconciles            *prometheus.CounterVec
	reconcileDuration     *prometheus.HistogramVec
	deletes               *prometheus.CounterVec
	deprovisioning        *prometheus.HistogramVec
	instances, bindings   prometheus.Gauge
	provisioning          prometheus.Histogram
	notReady              *prometheus.GaugeVec
	drift                 *prometheus.CounterVec
	removed               prometheus.Counter
	regenerations         *prometheus.CounterVec
	expiry                *prometheus.GaugeVec
	customConfig, refused prometheus.Gauge
	build                 *prometheus.GaugeVec
}

const namespace = "btpmanager"

// New registers the metrics at r, which may be nil. A second Metrics at the same registerer shares those of the first.
func New(cfg Config, r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		leader: gauge("leader", "1 while this replica leads and reconciles, 0 while it waits."),
		btpOperators: gauges("btpoperators",
			"BtpOperators by state and reason, as the leading replica sees them.", "state", "reason"),
		since: gauges("btpoperator_since_timestamp_seconds",
			"Start of the deprovisioning, of the deletion request or of the readiness of the BtpOperator that waits longest; 0 without one.",
			"state", "reason"),
		reconciles: counters("reconciles_total", "Passes over a BtpOperator, by outcome; a conflict means that another client changed an object first.", "outcome"),
		reconcileDuration: histograms("reconcile_duration_seconds",
			"Duration of a pass over a BtpOperator, by its state at the start.",
			prometheus.ExponentialBuckets(0.005, 2.5, 11), // 5 ms to 48 s: a pass never waits for changes of the cluster
			"state"),
		deletes: counters("deletes_total", "Hard and soft deletes of service instances and bindings, by result.", "mode", "outcome"),
		deprovisioning: histograms("deprovisioning_duration_seconds",
			"Time from the start of a deprovisioning to the end of the BtpOperator, by the mode of its last delete.", longBuckets(), "mode"),
		instances: gauge("service_instances_left", "Service instances left when a deprovisioning last counted them."),
		bindings:  gauge("service_bindings_left", "Service bindings left when a deprovisioning last counted them."),
		provisioning: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "provisioning_duration_seconds",
			Help: "Time from the start of a provisioning until everything was ready.", Buckets: longBuckets(),
		}),
		notReady: gauges("resources_not_ready", "Objects of the operand's chart that were not ready at the last check, by kind.", "kind"),
		drift: counters("drift_corrections_total",
			"Objects of the operand's chart that were corrected after another client had changed or deleted them, by kind.", "kind"),
		removed: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "objects_removed_total", Help: "Objects deleted because the operand's chart no longer contains them.",
		}),
		regenerations: counters("certs_regenerations_total", "New certificates of the webhooks.", "certificate"),
		expiry: gauges("certificate_expiry_timestamp_seconds",
			"Expiry of a certificate of the webhooks; 0 until it is known.", "certificate"),
		customConfig: gauge("custom_config_applied", "1 while the settings of the ConfigMap are in force, 0 with those of the flags alone."),
		refused:      gauge("config_rejected", "1 while the ConfigMap contains rejected settings, so that the previous ones stay in force."),
		build:        gauges("build_info", "1, with the running versions as labels.", "version", "chart_version", "go_version"),
	}
	if err := m.register(r); err != nil {
		return nil, err
	}
	m.create(cfg)
	return m, nil
}

func (m *Metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	return errors.Join(
		scrape.Register(r, &m.leader), scrape.Register(r, &m.btpOperators), scrape.Register(r, &m.since), scrape.Register(r, &m.reconciles),
		scrape.Register(r, &m.reconcileDuration), scrape.Register(r, &m.deletes), scrape.Register(r, &m.deprovisioning), scrape.Register(r, &m.instances),
		scrape.Register(r, &m.bindings), scrape.Register(r, &m.provisioning), scrape.Register(r, &m.notReady), scrape.Register(r, &m.drift),
		scrape.Register(r, &m.removed), scrape.Register(r, &m.regenerations), scrape.Register(r, &m.expiry), scrape.Register(r, &m.customConfig),
		scrape.Register(r, &m.refused), scrape.Register(r, &m.build),
	)
}

// create creates every combination of labels.
func (m *Metrics) create(cfg Config) {
	for _, at := range standings() {
		m.btpOperators.WithLabelValues(at.state, at.reason)
		m.since.WithLabelValues(at.state, at.reason)
	}
	for _, s := range states() {
		m.reconcileDuration.WithLabelValues(s)
	}
	for _, o := range outcomes() {
		m.reconciles.WithLabelValues(o)
	}
	for _, mode := range modes() {
		m.deprovisioning.WithLabelValues(string(mode))
		for _, end := range ends() {
			m.deletes.WithLabelValues(string(mode), string(end))
		}
	}
	for _, k := range kinds() {
		m.notReady.WithLabelValues(k)
		m.drift.WithLabelValues(k)
	}
	for _, c := range certificates() {
		m.regenerations.WithLabelValues(c)
		m.expiry.WithLabelValues(c)
	}
	unless := func(s string) string {
		if s == "" {
			return "unknown"
		}
		return s
	}
	m.build.WithLabelValues(unless(cfg.Version), unless(cfg.ChartVersion), runtime.Version()).Set(1)
}

// longBuckets are for operations of the cluster: from a second to an hour and a half, including the hard delete's 20 minutes.
func longBuckets() []float64 {
	return []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 5400}
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
}

func gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
