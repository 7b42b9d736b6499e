package broker

import (
	"context"
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/osb"
)

// metrics are what the broker counts; no label holds an id.
type metrics struct {
	requests    *prometheus.CounterVec
	durations   *prometheus.HistogramVec
	unpublished prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keb_osb_requests_total", Help: "Answered requests of the Open Service Broker API.",
		}, []string{"route", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "keb_osb_request_duration_seconds", Help: "Time to answer a request of the Open Service Broker API.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"}),
		unpublished: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "keb_broker_unpublished_requests", Help: "Accepted requests that the last sweep could not publish.",
		}),
	}
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(m.requests), r.Register(m.durations), r.Register(m.unpublished))
}

func (m *metrics) observe(_ context.Context, o osb.Observation) {
	route := knownMethod(o.Method) + " " + o.Route
	m.requests.WithLabelValues(route, strconv.Itoa(o.Status)).Inc()
	m.durations.WithLabelValues(route).Observe(o.Duration.Seconds())
}

// knownMethod bounds the label: a caller may send any word as a method.
func knownMethod(method string) string {
	switch method {
	case "GET", "PUT", "PATCH", "DELETE", "POST", "HEAD", "OPTIONS":
		return method
	}
	return "OTHER"
}
