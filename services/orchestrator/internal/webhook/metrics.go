package webhook

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of an attempt.
const (
	outcomeDelivered = "delivered"
	outcomeFailed    = "failed"
	outcomeDropped   = "dropped"
)

// States of a webhook in the gauge.
const stateFailing = "failing"

type meter struct {
	attempts *prometheus.CounterVec
	webhooks *prometheus.GaugeVec
}

func newMeter(r prometheus.Registerer) (*meter, error) {
	m := &meter{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keb_webhook_attempts_total",
			Help: "Attempts to send an event to a webhook. A dropped event is rejected by its receiver and not sent again.",
		}, []string{"webhook", "outcome"}),
		webhooks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "keb_webhooks",
			Help: "Webhooks by state. A failing webhook is active, and its last attempts have failed.",
		}, []string{"state"}),
	}
	for _, state := range []string{string(Active), stateFailing, string(Disabled)} {
		m.webhooks.WithLabelValues(state)
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.attempts, m.webhooks} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of webhooks: %w", err)
		}
	}
	return m, nil
}

func (m *meter) attempt(w *Webhook, outcome string) {
	m.attempts.WithLabelValues(w.Name, outcome).Inc()
}

// states sets the number of webhooks of each state.
func (m *meter) states(webhooks []Webhook) {
	counts := map[string]int{}
	for i := range webhooks {
		state := string(webhooks[i].State)
		if webhooks[i].State == Active && webhooks[i].Failures > 0 {
			state = stateFailing
		}
		counts[state]++
	}
	for _, state := range []string{string(Active), stateFailing, string(Disabled)} {
		m.webhooks.WithLabelValues(state).Set(float64(counts[state]))
	}
}
