package service

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxScrapes is the maximum number of concurrent scrapes.
const maxScrapes = 8

// Monitoring serves GET /metrics and the routes of Health. It omits metrics that cannot be gathered.
func Monitoring(metrics prometheus.Gatherer, health *Health) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes,
	}))
	mux.Handle("/", health.Handler())
	return mux
}
