package extclient

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/scrape"
)

// metrics are shared by all clients of a registry.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	open     *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keb_external_requests_total",
			Help: "Calls to external systems by system and status code; code is \"error\" without an answer, \"open\" while paused.",
		}, []string{"system", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "keb_external_request_duration_seconds",
			Help:    "How long calls to external systems took.",
			Buckets: []float64{.005, .02, .1, .5, 1, 5, 15, 30, 60, 120},
		}, []string{"system"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "keb_external_breaker_open",
			Help: "1 while calls to a system are paused by its circuit breaker.",
		}, []string{"system"}),
	}
	if r == nil {
		return m, nil
	}
	return m, errors.Join(scrape.Register(r, &m.requests), scrape.Register(r, &m.duration), scrape.Register(r, &m.open))
}

func (m *metrics) answered(system string, status int, took time.Duration) {
	code := "error"
	if status > 0 {
		code = strconv.Itoa(status)
	}
	m.requests.WithLabelValues(system, code).Inc()
	m.duration.WithLabelValues(system).Observe(took.Seconds())
}

// Measure counts and times the requests through next under the name of a system, for clients that this package did not create. A nil
// registerer is valid; a nil next is http.DefaultTransport.
func Measure(system string, r prometheus.Registerer, next http.RoundTripper) (http.RoundTripper, error) {
	m, err := newMetrics(r)
	if err != nil {
		return nil, err
	}
	if next == nil {
		next = http.DefaultTransport
	}
	return &measured{system: system, metrics: m, next: next}, nil
}

type measured struct {
	system  string
	metrics *metrics
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (m *measured) RoundTrip(req *http.Request) (*http.Response, error) {
	start := time.Now()
	resp, err := m.next.RoundTrip(req)
	status := 0
	if resp != nil {
		status = resp.StatusCode
	}
	m.metrics.answered(m.system, status, time.Since(start))
	return resp, err
}
