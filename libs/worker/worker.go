package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/tracing"
)

// Defaults of Config.
const (
	DefaultConcurrency  = 32
	DefaultDrainTimeout = 20 * time.Second
)

// Config configures a worker.
type Config struct {
	// Name is the name of the worker in the process files, for example "avs": lower-case letters, digits and "-", at most 32.
	// All processes with the same name share the commands.
	Name string
	// Version is reported with every result; optional.
	Version string
	// Concurrency is the maximum number of steps in parallel in this process; 0 means 32.
	Concurrency int
	// RateLimit is the maximum number of started steps per second in this process; 0 means no limit.
	RateLimit float64
	// DrainTimeout is the time limit for running steps after the worker begins to stop; 0 means 20 s.
	DrainTimeout time.Duration
	// Ramped makes this process execute only the commands that a ramp sends to its version.
	Ramped bool
	// Questions are the questions that the worker answers. A worker with questions may have no steps.
	Questions []Question
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if err := CheckName(c.Name); err != nil {
		problems = append(problems, err)
	}
	if c.Concurrency < 0 || c.Concurrency > 10_000 {
		bad("concurrency %d: use 1 to 10000, or 0 for %d", c.Concurrency, DefaultConcurrency)
	}
	if c.RateLimit < 0 {
		bad("rate limit %g: use steps per second, or 0 for none", c.RateLimit)
	}
	if c.DrainTimeout < 0 {
		bad("drain timeout %s: use a positive time, or 0 for %s", c.DrainTimeout, DefaultDrainTimeout)
	}
	problems = append(problems, checkQuestions(c.Questions))
	return errors.Join(problems...)
}

func (c Config) withDefaults() Config {
	if c.Concurrency == 0 {
		c.Concurrency = DefaultConcurrency
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	return c
}

// Deps are the dependencies of a worker.
type Deps struct {
	Bus *bus.Bus
	// StageMemory may be nil. A step that remembers a value or sets overrides then fails with ErrNoStageMemory.
	StageMemory *stagemem.Memory
	// Log, Registerer and Now are optional. Now is the clock; nil means time.Now.
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
	// TracerProvider creates a span of each execution; nil disables tracing.
	TracerProvider trace.TracerProvider
}

// Worker executes the steps of one worker name.
type Worker struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	now     func() time.Time
	steps   map[string]Step
	names   []string
	metrics *metrics
	limiter *rate.Limiter
	tracer  trace.Tracer // nil: none
	spec    event.ConsumerSpec
	// slotPatience is the constant of that name, unless a test changes it.
	slotPatience time.Duration
	// overdueGrace is the constant of that name, unless a test changes it.
	overdueGrace time.Duration
}

// New creates a worker with at least one step or question. It reports all invalid and duplicate names.
func New(cfg Config, deps Deps, steps ...Step) (*Worker, error) {
	w := &Worker{
		cfg: cfg.withDefaults(), deps: deps, log: deps.Log, now: deps.Now, tracer: tracing.TracerOf(deps.TracerProvider, "libs/worker"), steps: make(map[string]Step, len(steps)),
		spec: consumerOf(cfg), slotPatience: slotPatience, overdueGrace: overdueGrace,
	}
	if err := check(cfg, steps); err != nil {
		return nil, fmt.Errorf("new worker: %w", err)
	}
	if deps.Bus == nil {
		return nil, errors.New("new worker: Deps.Bus is missing")
	}
	for _, s := range steps {
		w.steps[s.Name()] = s
		w.names = append(w.names, s.Name())
	}
	slices.Sort(w.names)
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if w.now == nil {
		w.now = time.Now
	}
	if cfg.RateLimit > 0 {
		w.limiter = rate.NewLimiter(rate.Limit(cfg.RateLimit), 1)
	}
	var err error
	if w.metrics, err = newMetrics(deps.Registerer, cfg.Name, w.names); err != nil {
		return nil, fmt.Errorf("new worker: %w", err)
	}
	if len(steps) > 0 {
		w.metrics.concurrency.Set(float64(w.cfg.Concurrency))
	}
	return w, nil
}

func consumerOf(cfg Config) event.ConsumerSpec {
	if cfg.Ramped {
		return event.CommandsConsumer(event.Ramped(cfg.Name))
	}
	return event.CommandsConsumer(cfg.Name)
}

// CheckName validates the name of a worker.
func CheckName(name string) error {
	if !workerNames.MatchString(name) {
		return fmt.Errorf("worker name %q: use lower-case letters, digits and \"-\", at most 32 of them", name)
	}
	return nil
}

func check(cfg Config, steps []Step) error {
	problems := []error{cfg.Validate()}
	if len(steps) == 0 && len(cfg.Questions) == 0 {
		problems = append(problems, errors.New("it has no steps"))
	}
	seen := map[string]bool{}
	for _, s := range steps {
		if err := CheckStep(s); err != nil {
			problems = append(problems, err)
			continue
		}
		if seen[s.Name()] {
			problems = append(problems, fmt.Errorf("step %q is duplicated", s.Name()))
		}
		seen[s.Name()] = true
	}
	return errors.Join(problems...)
}

// Run executes steps until ctx ends, and then drains: it returns commands that are not started to the bus,
// waits DrainTimeout for running steps, and publishes their results. It returns nil after that, or an error that
// names the steps that did not stop after their context ended.
func (w *Worker) Run(ctx context.Context) error {
	var running atomic.Pointer[pool]
	stop, err := w.announce(func() []string {
		if p := running.Load(); p != nil {
			return p.commands()
		}
		return []string{}
	})
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.cfg.Name, err)
	}
	defer stop()
	stopAnswers, err := w.answerQuestions()
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.cfg.Name, err)
	}
	defer stopAnswers()
	w.log.Info("worker started", "worker", w.cfg.Name, "version", w.cfg.Version, "steps", strings.Join(w.names, ","))
	if len(w.names) == 0 {
		<-ctx.Done()
		w.log.Info("worker stopped", "worker", w.cfg.Name)
		return nil
	}

	stopCancels, err := w.hearCancels(func(n event.CancelNotice) {
		if p := running.Load(); p != nil {
			p.cancelCommand(n)
		}
	})
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.cfg.Name, err)
	}
	defer stopCancels()
	p := w.startPool(ctx)
	running.Store(p)
	consumeErr := w.deps.Bus.Consume(ctx, bus.ConsumeConfig{
		Consumer: w.spec,
		MaxBatch: w.cfg.Concurrency,
		Handlers: 1,
		Prefetch: w.cfg.Concurrency,
	}, p.accept)
	if consumeErr != nil {
		consumeErr = fmt.Errorf("worker %s: %w", w.cfg.Name, consumeErr)
	}
	// The draining worker must receive no new requests and must not be discovered. A ramped one still reports its commands: after the removal of
	// its ramp they would be executed elsewhere.
	stopAnswers()
	if !w.cfg.Ramped {
		stop()
	}
	drainErr := p.drain(w.cfg.DrainTimeout)
	w.log.Info("worker stopped", "worker", w.cfg.Name)
	return errors.Join(consumeErr, drainErr)
}
