package operatorapi

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// unknownRoute is the label of requests that match no route.
const unknownRoute = "other"

type metrics struct {
	requests, actions *prometheus.CounterVec
	durations         *prometheus.HistogramVec
}

// newMetrics initializes the series of all actions, so that the first increase is visible as a rate.
func newMetrics(r prometheus.Registerer, actions map[string]string) *metrics {
	f := promauto.With(r)
	m := &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "keb_operator_requests_total", Help: "Answered requests of the operator API.",
		}, []string{"route", "code"}),
		durations: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "keb_operator_request_duration_seconds", Help: "Time to answer a request of the operator API, without streams.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"}),
		actions: f.NewCounterVec(prometheus.CounterOpts{
			Name: "keb_operator_actions_total", Help: "Actions of operators, by outcome.",
		}, []string{"action", "outcome"}),
	}
	for _, action := range actions {
		for _, outcome := range []store.Outcome{store.OutcomeDone, store.OutcomeRefused, store.OutcomeFailed} {
			m.actions.WithLabelValues(action, string(outcome))
		}
	}
	return m
}

// Observed counts and measures the answers of next. next serves Handler, and may reject requests before it.
func (a *API) Observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := a.mux.Handler(r)
		answer := &observed{ResponseWriter: w}
		start := time.Now()
		defer func() { // also after a panic, which the server reports
			a.metrics.observe(a.actions[pattern], pattern, answer, time.Since(start))
		}()
		next.ServeHTTP(answer, r)
		answer.WriteHeader(http.StatusOK)
	})
}

func (m *metrics) observe(action, pattern string, answer *observed, took time.Duration) {
	status := answer.status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	route := pattern
	if route == "" {
		route = unknownRoute
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	if !strings.HasPrefix(answer.Header().Get("Content-Type"), "text/event-stream") {
		m.durations.WithLabelValues(route).Observe(took.Seconds())
	}
	if action == "" {
		return
	}
	outcome := store.OutcomeDone
	switch {
	case status >= http.StatusInternalServerError:
		outcome = store.OutcomeFailed
	case status >= http.StatusBadRequest:
		outcome = store.OutcomeRefused
	}
	m.actions.WithLabelValues(action, string(outcome)).Inc()
}

// observed records the status of an answer.
type observed struct {
	http.ResponseWriter
	status int
}

// WriteHeader sends the status, once.
func (o *observed) WriteHeader(status int) {
	if o.status != 0 {
		return
	}
	if status >= http.StatusOK { // otherwise the final status follows
		o.status = status
	}
	o.ResponseWriter.WriteHeader(status)
}

// Write sends the body.
func (o *observed) Write(b []byte) (int, error) {
	o.WriteHeader(http.StatusOK)
	return o.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush streams.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }
