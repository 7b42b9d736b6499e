package dispatch

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/scrape"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

const (
	// maxReasons bounds the error reasons per step, because workers may send any text.
	maxReasons = 16
	// maxPlans bounds the values of the label plan.
	maxPlans = 64
)

// Metrics are the metrics of Dispatchers. Children of frequently used vectors are looked up once per definition instead of with every
// step.
type Metrics struct {
	created, started      *prometheus.CounterVec
	finished, steps       *prometheus.CounterVec
	sentAgain             prometheus.Counter
	stale, conflicts      prometheus.Counter
	unknown, factsLost    prometheus.Counter
	foreign               prometheus.Counter
	batchSize, commitTime prometheus.Histogram
	duration, waiting     *prometheus.HistogramVec
	stageTime, stepTime   *prometheus.HistogramVec
	attempts              *prometheus.HistogramVec
	lateEffects           *prometheus.CounterVec

	plans *scrape.Bound
	// processes holds a *processMetrics by *process.Process. Definitions are few and never change.
	processes sync.Map

	mu sync.Mutex
	// kinds holds the prepared metrics by type and plan, and reasons the error reasons by type and step, for all definitions.
	kinds   map[kind]*kindMetrics
	reasons map[string]*scrape.Bound
}

type kind struct {
	operation event.OperationType
	plan      string
}

type kindMetrics struct {
	created   prometheus.Counter
	started   prometheus.Counter
	finished  map[event.OperationState]prometheus.Counter
	durations map[event.OperationState]prometheus.Observer
}

type processMetrics struct {
	waiting prometheus.Observer
	stages  []stageMetrics
}

type stageMetrics struct {
	duration prometheus.Observer
	steps    []*stepMetrics
}

type stepMetrics struct {
	// plain holds the counters without a reason, and failures the counters with one.
	plain              map[event.Outcome]prometheus.Counter
	failures           sync.Map
	reasons            *scrape.Bound
	duration, attempts prometheus.Observer
	// lateEffects is nil, unless the step is one of a deprovisioning.
	lateEffects prometheus.Counter
}

type failure struct {
	outcome event.Outcome
	reason  string
}

// NewMetrics returns metrics, registered with r unless r is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return f.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	// The duration of a step ranges from milliseconds to half a day.
	wide := prometheus.ExponentialBuckets(0.01, 4, 12)
	return &Metrics{
		created:  vector("keb_operations_created_total", "Operations taken in.", "type", "plan"),
		started:  vector("keb_operations_started_total", "Operations that have started, or started again after a retry by an operator.", "type", "plan"),
		finished: vector("keb_operations_finished_total", "Operations that have ended.", "type", "plan", "state"),
		steps: vector("keb_steps_finished_total", "Executions of steps that have ended, by outcome and reason of the error.",
			"type", "step", "worker", "outcome", "reason"),
		lateEffects: vector("keb_late_effects_total",
			"Objects that unanswered requests had created after the deprovisioning of their instance, and that a second one removed.", "step"),
		sentAgain: counter("keb_commands_sent_again_total", "Commands sent again because they were not answered, or were lost, or belong to a ramp."),
		stale:     counter("keb_results_stale_total", "Results that belonged to an older command and changed nothing."),
		conflicts: counter("keb_write_conflicts_total", "States that another orchestrator had changed first."),
		unknown:   counter("keb_results_unknown_total", "Results of operations that do not exist."),
		foreign: counter("keb_results_foreign_total",
			"Results that were refused because another worker was asked."),
		factsLost: counter("keb_facts_lost_total", "Facts that the bus did not take at once."),
		batchSize: f.NewHistogram(prometheus.HistogramOpts{
			Name: "keb_fold_batch_size", Help: "Results applied in one commit.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000},
		}),
		commitTime: f.NewHistogram(prometheus.HistogramOpts{
			Name: "keb_fold_commit_seconds", Help: "Time to write and commit a batch of results.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		duration: histogram("keb_operation_duration_seconds", "Time from the start of an operation to its end.",
			prometheus.ExponentialBuckets(1, 3, 11), "type", "plan", "state"),
		waiting: histogram("keb_operation_waiting_seconds", "Time from the arrival of an operation to its start.", wide, "type"),
		stageTime: histogram("keb_stage_duration_seconds", "Time from the start of a stage to its end, with its repetitions.",
			wide, "type", "stage"),
		stepTime: histogram("keb_step_duration_seconds", "Time from the first try of a step to its end, with all attempts and waits.",
			wide, "type", "step", "worker"),
		attempts: histogram("keb_step_attempts", "Attempts that a step took until it ended.",
			[]float64{1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000}, "type", "step"),
		plans: scrape.NewBound(maxPlans), kinds: map[kind]*kindMetrics{}, reasons: map[string]*scrape.Bound{},
	}
}

// prepare creates the series of new operations, so that their rates are correct from the first event.
func (m *Metrics) prepare(definitions Definitions) {
	for _, t := range event.OperationTypes() {
		if p := definitions.Current(t); p != nil {
			m.of(p)
		}
	}
}

// of returns the prepared metrics of a definition.
func (m *Metrics) of(p *process.Process) *processMetrics {
	if found, ok := m.processes.Load(p); ok {
		return found.(*processMetrics)
	}
	t := string(p.Operation)
	ready := &processMetrics{waiting: m.waiting.WithLabelValues(t), stages: make([]stageMetrics, len(p.Stages))}
	for i := range p.Stages {
		stage := &p.Stages[i]
		ready.stages[i] = stageMetrics{duration: m.stageTime.WithLabelValues(t, stage.Name), steps: make([]*stepMetrics, len(stage.Steps))}
		for j := range stage.Steps {
			ready.stages[i].steps[j] = m.step(t, &stage.Steps[j])
		}
	}
	found, _ := m.processes.LoadOrStore(p, ready)
	return found.(*processMetrics)
}

func (m *Metrics) step(t string, s *process.Step) *stepMetrics {
	ready := &stepMetrics{plain: map[event.Outcome]prometheus.Counter{}, reasons: m.reasonsOf(t + "/" + s.Name)}
	outcomes := []event.Outcome{event.OutcomeSucceeded, event.OutcomeSkipped}
	if !s.BuiltIn() {
		ready.duration = m.stepTime.WithLabelValues(t, s.Name, s.Worker)
		ready.attempts = m.attempts.WithLabelValues(t, s.Name)
		outcomes = append(outcomes, event.OutcomeRetry, event.OutcomeFailed, event.OutcomeNotCompleted, event.OutcomeStageLost, event.OutcomeNoAnswer)
	}
	if !s.BuiltIn() && t == string(event.Deprovision) {
		ready.lateEffects = m.lateEffects.WithLabelValues(s.Name)
	}
	for _, o := range outcomes {
		ready.plain[o] = m.steps.WithLabelValues(t, s.Name, s.Worker, string(o), "")
	}
	return ready
}

func (m *Metrics) reasonsOf(step string) *scrape.Bound {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.reasons[step]
	if b == nil {
		b = scrape.NewBound(maxReasons)
		m.reasons[step] = b
	}
	return b
}

// kind returns the prepared metrics of a type and plan, with all final states.
func (m *Metrics) kind(op *event.Operation) *kindMetrics {
	k := kind{operation: op.Type, plan: m.plans.Value(op.Plan.Name)}
	m.mu.Lock()
	defer m.mu.Unlock()
	ready := m.kinds[k]
	if ready == nil {
		ready = &kindMetrics{
			created:  m.created.WithLabelValues(string(k.operation), k.plan),
			started:  m.started.WithLabelValues(string(k.operation), k.plan),
			finished: map[event.OperationState]prometheus.Counter{}, durations: map[event.OperationState]prometheus.Observer{},
		}
		for _, state := range []event.OperationState{event.Succeeded, event.Failed, event.Cancelled} {
			ready.finished[state] = m.finished.WithLabelValues(string(k.operation), k.plan, string(state))
			ready.durations[state] = m.duration.WithLabelValues(string(k.operation), k.plan, string(state))
		}
		m.kinds[k] = ready
	}
	return ready
}

// observe counts committed changes. It is called once for each change.
func (m *Metrics) observe(works []*work) {
	for _, w := range works {
		if w.change != nil {
			m.observeOne(w)
		}
	}
}

func (m *Metrics) observeOne(w *work) {
	ready := m.of(w.process)
	for i := range w.change.History {
		switch e := &w.change.History[i]; e.Kind {
		case engine.KindStep:
			ready.stages[e.Stage].steps[e.Step].observe(m, w, e)
		case engine.KindStarted:
			m.kind(&w.row.Operation).started.Inc()
			if e.Cursor == 1 { // not after a retry by an operator
				ready.waiting.Observe(e.StartedAt.Sub(w.row.CreatedAt).Seconds())
			}
		}
	}
	for _, s := range w.effects.Stages {
		ready.stages[s.Stage].duration.Observe(s.Took.Seconds())
	}
	if w.effects.Dispatch && w.row.Dispatch > 1 {
		m.sentAgain.Inc()
	}
	if w.effects.Finished {
		k, state := m.kind(&w.row.Operation), w.row.Status
		k.finished[state].Inc()
		if !w.row.StartedAt.IsZero() { // zero if it was cancelled before its start
			k.durations[state].Observe(w.row.FinishedAt.Sub(w.row.StartedAt).Seconds())
		}
	}
}

func (s *stepMetrics) observe(m *Metrics, w *work, e *engine.Entry) {
	s.counter(m, w, e).Inc()
	if e.LateEffects > 0 {
		s.lateEffects.Add(float64(e.LateEffects))
	}
	switch {
	case e.Took == 0 && e.StepAttempt == 0: // the step was never tried
	case s.duration == nil || e.Outcome == event.OutcomeRetry || e.Outcome == event.OutcomeStageLost || e.Outcome == event.OutcomeNoAnswer:
	default:
		s.duration.Observe(e.Took.Seconds())
		s.attempts.Observe(float64(e.StepAttempt))
	}
}

func (s *stepMetrics) counter(m *Metrics, w *work, e *engine.Entry) prometheus.Counter {
	reason := ""
	if e.Error != nil {
		reason = s.reasons.Value(e.Error.Reason)
	}
	if reason == "" {
		if c := s.plain[e.Outcome]; c != nil {
			return c
		}
	}
	key := failure{outcome: e.Outcome, reason: reason}
	if c, ok := s.failures.Load(key); ok {
		return c.(prometheus.Counter)
	}
	step := &w.process.Stages[e.Stage].Steps[e.Step]
	c := m.steps.WithLabelValues(string(w.process.Operation), step.Name, step.Worker, string(e.Outcome), reason)
	s.failures.Store(key, c)
	return c
}
