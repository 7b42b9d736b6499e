package worker

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/scrape"
)

// Reasons for which a command was not executed, as a label.
const (
	ignoredLate       = "late"
	ignoredDuplicate  = "duplicate"
	ignoredUnknown    = "unknown_step"
	ignoredUnreadable = "unreadable"
	// ignoredOutdated is a redelivered command that is no longer current, ignoredUnchecked one without an answer about that.
	ignoredOutdated  = "outdated"
	ignoredUnchecked = "unchecked"
	// ignoredOverdue is a command whose earlier dispatch has not returned in time and still runs in this process.
	ignoredOverdue = "overdue"
	// ignoredQuarantined is a command that has ended its process too often.
	ignoredQuarantined = "quarantined"
)

// metrics of one worker. All label combinations exist from the start, so that a rate includes the first
// event, and the hot path needs no lookup by label.
type metrics struct {
	steps       map[string]stepMetrics
	running     prometheus.Gauge
	abandoned   prometheus.Gauge
	concurrency prometheus.Gauge
	panics      prometheus.Counter
	unpublished prometheus.Counter
	ignored     map[string]prometheus.Counter
}

type stepMetrics struct {
	outcomes map[event.Outcome]prometheus.Counter
	duration prometheus.Observer
}

func newMetrics(r prometheus.Registerer, worker string, steps []string) (*metrics, error) {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keb_worker_steps_total", Help: "Executions of a step, by how they ended.",
	}, []string{"worker", "step", "outcome"})
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "keb_worker_step_duration_seconds", Help: "Time that one execution of a step took.",
		// The buckets range from a step without work to one that uses its whole execution limit.
		Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300},
	}, []string{"worker", "step"})
	running := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "keb_worker_steps_running", Help: "Steps that run now.",
	}, []string{"worker"})
	abandoned := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "keb_worker_steps_abandoned", Help: "Steps that have not returned although their time limit has passed, and that no longer hold a slot.",
	}, []string{"worker"})
	concurrency := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "keb_worker_concurrency", Help: "The most steps that run at once.",
	}, []string{"worker"})
	panics := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keb_worker_panics_total", Help: "Executions of a step that ended in a panic.",
	}, []string{"worker"})
	unpublished := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keb_worker_results_unpublished_total", Help: "Results that could not be published; their commands come again.",
	}, []string{"worker"})
	ignored := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keb_worker_commands_ignored_total", Help: "Commands that were not executed, by reason.",
	}, []string{"worker", "reason"})

	if r != nil {
		err := errors.Join(scrape.Register(r, &total), scrape.Register(r, &duration), scrape.Register(r, &running), scrape.Register(r, &abandoned), scrape.Register(r, &concurrency), scrape.Register(r, &panics),
			scrape.Register(r, &unpublished), scrape.Register(r, &ignored))
		if err != nil {
			return nil, err
		}
	}

	m := &metrics{
		steps:   make(map[string]stepMetrics, len(steps)),
		running: running.WithLabelValues(worker), abandoned: abandoned.WithLabelValues(worker), concurrency: concurrency.WithLabelValues(worker), panics: panics.WithLabelValues(worker),
		unpublished: unpublished.WithLabelValues(worker),
		ignored:     map[string]prometheus.Counter{},
	}
	for _, reason := range []string{ignoredLate, ignoredDuplicate, ignoredUnknown, ignoredUnreadable, ignoredOutdated, ignoredUnchecked, ignoredOverdue, ignoredQuarantined} {
		m.ignored[reason] = ignored.WithLabelValues(worker, reason)
	}
	for _, step := range steps {
		s := stepMetrics{outcomes: map[event.Outcome]prometheus.Counter{}, duration: duration.WithLabelValues(worker, step)}
		for _, o := range []event.Outcome{
			event.OutcomeSucceeded, event.OutcomeRetry, event.OutcomeFailed, event.OutcomeSkipped,
			event.OutcomeNotCompleted, event.OutcomeStageLost,
		} {
			s.outcomes[o] = total.WithLabelValues(worker, step, string(o))
		}
		m.steps[step] = s
	}
	return m, nil
}

func (m *metrics) executed(step string, r *Result, took time.Duration) {
	s := m.steps[step]
	s.outcomes[r.Outcome].Inc()
	s.duration.Observe(took.Seconds())
	if r.panicked {
		m.panics.Inc()
	}
}
