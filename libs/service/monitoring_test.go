package service

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// broken is a metric that cannot be gathered.
type broken struct{ desc *prometheus.Desc }

func (b broken) Describe(ch chan<- *prometheus.Desc) { ch <- b.desc }
func (b broken) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(b.desc, errors.New("cannot be read"))
}

func TestMonitoring_BrokenMetric_OthersAreServed(t *testing.T) {
	t.Parallel()
	registry := Registry()
	registry.MustRegister(broken{prometheus.NewDesc("keb_broken", "Broken.", nil, nil)})
	h := Monitoring(registry, NewHealth())
	for path, want := range map[string]string{"/metrics": "go_goroutines ", "/healthz": `"ok"`, "/readyz": `"ok"`} {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), want) {
			t.Errorf("GET %s: %d, want 200 with %q", path, answer.Code, want)
		}
	}
}
