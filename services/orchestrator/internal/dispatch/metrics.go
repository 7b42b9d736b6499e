package dispatch

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

type metrics struct {
	created, finished, steps *prometheus.CounterVec
	sentAgain                prometheus.Counter
	stale, conflicts         prometheus.Counter
	unknown, factsLost       prometheus.Counter
	batchSize, commitTime    prometheus.Histogram
	duration                 *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Namespace: "keb", Name: name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Namespace: "keb", Name: name, Help: help}, labels)
	}
	return &metrics{
		created:   vector("operations_created_total", "Operations taken in.", "type", "plan"),
		finished:  vector("operations_finished_total", "Operations that have ended.", "type", "plan", "state"),
		steps:     vector("steps_finished_total", "Executions of steps that have ended, by outcome.", "type", "step", "outcome"),
		sentAgain: counter("commands_sent_again_total", "Commands sent again because nobody had answered them."),
		stale:     counter("results_stale_total", "Results that belonged to an older command and changed nothing."),
		conflicts: counter("write_conflicts_total", "States that another orchestrator had changed first."),
		unknown:   counter("results_unknown_total", "Results of operations that do not exist."),
		factsLost: counter("facts_lost_total", "Facts that the bus did not take."),
		batchSize: f.NewHistogram(prometheus.HistogramOpts{
			Namespace: "keb", Name: "fold_batch_size", Help: "Results folded in one commit.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000},
		}),
		commitTime: f.NewHistogram(prometheus.HistogramOpts{
			Namespace: "keb", Name: "fold_commit_seconds", Help: "Time to write and commit a batch of results.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "keb", Name: "operation_duration_seconds", Help: "Time from the start of an operation to its end.",
			Buckets: prometheus.ExponentialBuckets(1, 3, 11),
		}, []string{"type", "plan", "state"}),
	}
}

// observe counts what has happened to an operation.
func (m *metrics) observe(w *work) {
	op := &w.row.Operation
	for i := range w.change.History {
		e := &w.change.History[i]
		if e.Kind == engine.KindStep {
			m.steps.WithLabelValues(string(op.Type), w.process.Stages[e.Stage].Steps[e.Step].Name, string(e.Outcome)).Inc()
		}
	}
	if w.effects.Dispatch && w.row.Dispatch > 1 {
		m.sentAgain.Inc()
	}
	if w.effects.Finished {
		labels := []string{string(op.Type), op.Plan.Name, string(w.row.Status)}
		m.finished.WithLabelValues(labels...).Inc()
		m.duration.WithLabelValues(labels...).Observe(w.row.FinishedAt.Sub(w.row.StartedAt).Seconds())
	}
}
