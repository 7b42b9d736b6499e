package census

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/scrape"
	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
)

const (
	// maxAge is the maximum age of values that are read from the database for metrics only.
	maxAge = 2 * time.Second
	// readTimeout is enough to count 100,000 operations on a busy machine.
	readTimeout = 4 * time.Second
	// localAge is the maximum age of values that are read from memory, or that a Value caches.
	localAge = 100 * time.Millisecond
	// maxPlans, maxWorkers and maxConsumers bound the values of labels that come from outside.
	maxPlans, maxWorkers, maxConsumers = 64, 64, 128
)

// Register registers the gauges.
func (c *Census) Register(r prometheus.Registerer) error {
	return errors.Join(
		r.Register(newOperations(c)), r.Register(newOrchestrations(c)), r.Register(newWorkers(c)), r.Register(newBus(c)), r.Register(newLimits(c)),
	)
}

func (c *Census) config(source string, age time.Duration) scrape.Config {
	return scrape.Config{Source: source, Age: age, Limit: readTimeout, Log: c.deps.Log}
}

// steps calls f for the steps of the current definitions that workers execute.
func steps(set process.Set, f func(t event.OperationType, s *process.Step)) {
	for t, p := range set {
		for i := range p.Stages {
			for j := range p.Stages[i].Steps {
				if s := &p.Stages[i].Steps[j]; !s.BuiltIn() {
					f(t, s)
				}
			}
		}
	}
}

type operations struct {
	c     *Census
	plans *scrape.Bound

	unfinished, waiting, oldest, atStep, longestAtStep, lag *scrape.Gauge
}

func newOperations(c *Census) *scrape.Collector {
	o := &operations{
		c: c, plans: scrape.NewBound(maxPlans),
		unfinished: scrape.NewGauge("keb_operations_unfinished", "Operations that have not ended.", "type", "plan", "state").Remembered(),
		waiting: scrape.NewGauge("keb_operations_waiting",
			"Operations that have not ended, by why they stand where they stand; executing and polling are healthy.", "type", "reason").Remembered(),
		oldest: scrape.NewGauge("keb_operations_oldest_seconds", "Age of the oldest operation that has not ended.", "type", "state").Remembered(),
		atStep: scrape.NewGauge("keb_step_operations", "Operations at a step, by the condition that they are in.", "worker", "step", "condition").Remembered(),
		longestAtStep: scrape.NewGauge("keb_step_oldest_seconds",
			"How long the operation that has been in a condition at a step longest has been in it.", "worker", "step", "condition").Remembered(),
		lag: scrape.NewGauge("keb_sweep_lag_seconds", "How long the most overdue timer has been due."),
	}
	return scrape.New(c.config("operations", localAge), o.read, o.unfinished, o.waiting, o.oldest, o.atStep, o.longestAtStep, o.lag)
}

func (o *operations) read(ctx context.Context, s *scrape.Sample) error {
	standing, err := o.c.Read(ctx)
	if err != nil {
		return err
	}
	now := o.c.deps.Now()
	o.empty(s)
	s.Max(o.lag, 0)
	s.Max(o.lag, seconds(standing.FirstDue, now))
	for i := range standing.Groups {
		o.add(s, &standing.Groups[i], now)
	}
	return nil
}

// empty adds all series that are known in advance, so that they exist with the value 0.
func (o *operations) empty(s *scrape.Sample) {
	set := o.c.deps.Definitions.Set()
	for t := range set {
		for _, reason := range operator.WaitingReasons() {
			s.Add(o.waiting, 0, string(t), string(reason))
		}
		for _, state := range []event.OperationState{event.Pending, event.InProgress} {
			s.Add(o.oldest, 0, string(t), string(state))
		}
	}
	steps(set, func(_ event.OperationType, step *process.Step) {
		for _, condition := range operator.StepReasons() {
			s.Add(o.atStep, 0, step.Worker, step.Name, string(condition))
			s.Add(o.longestAtStep, 0, step.Worker, step.Name, string(condition))
		}
	})
}

func (o *operations) add(s *scrape.Sample, g *Group, now time.Time) {
	n, t := float64(g.Count), string(g.Type)
	s.Add(o.unfinished, n, t, o.plans.Value(g.Plan), string(g.State))
	s.Max(o.oldest, seconds(g.Oldest, now), t, string(g.State))
	s.Add(o.waiting, n, t, string(g.Reason))
	if g.Worker == "" {
		return
	}
	s.Add(o.atStep, n, g.Worker, g.Step, string(g.Reason))
	s.Max(o.longestAtStep, seconds(g.Since, now), g.Worker, g.Step, string(g.Reason))
}

// seconds returns the time from a to b, at least 0; 0 if a is not set.
func seconds(a, b time.Time) float64 {
	if a.IsZero() {
		return 0
	}
	return max(0, b.Sub(a).Seconds())
}

type orchestrations struct {
	c              *Census
	active, member *scrape.Gauge
}

func newOrchestrations(c *Census) *scrape.Collector {
	o := &orchestrations{
		c:      c,
		active: scrape.NewGauge("keb_orchestrations", "Orchestrations that have not ended.", "type", "state"),
		member: scrape.NewGauge("keb_orchestration_operations", "Operations of orchestrations that have not ended.", "type", "state"),
	}
	return scrape.New(c.config("orchestrations", maxAge), o.read, o.active, o.member)
}

func (o *orchestrations) read(ctx context.Context, s *scrape.Sample) error {
	active, members, err := o.c.deps.Orchestrations.Census(ctx)
	if err != nil {
		return err
	}
	for _, t := range []event.OperationType{event.UpgradeKyma, event.UpgradeCluster} {
		for _, state := range orchestration.States() {
			if !state.Final() {
				s.Add(o.active, 0, string(t), string(state))
			}
		}
		for _, state := range orchestration.MemberStates() {
			s.Add(o.member, 0, string(t), string(state))
		}
	}
	for _, a := range active {
		s.Add(o.active, float64(a.Count), string(a.Type), string(a.State))
	}
	for _, m := range members {
		s.Add(o.member, float64(m.Count), string(m.Type), string(m.State))
	}
	return nil
}

type workers struct {
	c                *Census
	names            *scrape.Bound
	replicas, ramped *scrape.Gauge
	served           *scrape.Gauge
}

func newWorkers(c *Census) *scrape.Collector {
	w := &workers{
		c: c, names: scrape.NewBound(maxWorkers, c.deps.Definitions.Set().Workers()...),
		replicas: scrape.NewGauge("keb_worker_replicas", "Live replicas of a worker.", "worker").Remembered(),
		ramped:   scrape.NewGauge("keb_worker_ramp_replicas", "Live ramped replicas with the version of a ramp.", "worker", "version"),
		served: scrape.NewGauge("keb_worker_step_served",
			"1 when a live replica serves a step of the processes, else 0.", "worker", "step"),
	}
	return scrape.New(c.config("workers", localAge), w.read, w.replicas, w.ramped, w.served)
}

func (w *workers) read(_ context.Context, s *scrape.Sample) error {
	set := w.c.deps.Definitions.Set()
	for _, name := range set.Workers() {
		s.Add(w.replicas, 0, name)
	}
	ramped := map[string]map[string]int{}
	for _, live := range w.c.deps.Workers.Workers() {
		s.Add(w.replicas, float64(live.Replicas), w.names.Value(live.Name))
		ramped[live.Name] = live.Ramped
	}
	for _, r := range w.c.deps.Ramps() {
		s.Max(w.ramped, float64(ramped[r.Worker][r.Version]), w.names.Value(r.Worker), r.Version)
	}
	steps(set, func(_ event.OperationType, step *process.Step) {
		served := 0.0
		if w.c.deps.Workers.Serves(step.Worker, step.Name) {
			served = 1
		}
		s.Max(w.served, served, step.Worker, step.Name)
	})
	return nil
}

type bus struct {
	c                                 *Census
	consumers                         *scrape.Bound
	messages, bytes, pending, waiting *scrape.Gauge
}

func newBus(c *Census) *scrape.Collector {
	b := &bus{
		c: c, consumers: scrape.NewBound(maxConsumers, c.deps.Definitions.Set().Workers()...),
		messages: scrape.NewGauge("keb_bus_stream_messages", "Messages that a stream holds.", "stream"),
		bytes:    scrape.NewGauge("keb_bus_stream_bytes", "Bytes that a stream holds.", "stream"),
		pending:  scrape.NewGauge("keb_bus_consumer_pending", "Messages of a consumer that are not yet delivered.", "stream", "consumer"),
		waiting: scrape.NewGauge("keb_bus_consumer_ack_pending",
			"Messages of a consumer that are delivered and not acknowledged.", "stream", "consumer"),
	}
	return scrape.New(c.config("bus", maxAge), b.read, b.messages, b.bytes, b.pending, b.waiting)
}

func (b *bus) read(ctx context.Context, s *scrape.Sample) error {
	for _, spec := range event.Streams() {
		name := string(spec.Name)
		stream, err := b.c.deps.JetStream.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // the next publication creates it again
		}
		if err != nil {
			return fmt.Errorf("read stream %s: %w", name, err)
		}
		state := stream.CachedInfo().State
		s.Add(b.messages, float64(state.Msgs), name)
		s.Add(b.bytes, float64(state.Bytes), name)
		list := stream.ListConsumers(ctx)
		for info := range list.Info() {
			if info.Config.Durable == "" {
				continue // a temporary consumer with a random name
			}
			consumer := b.consumers.Value(info.Name)
			s.Add(b.pending, float64(info.NumPending), name, consumer)
			s.Add(b.waiting, float64(info.NumAckPending), name, consumer)
		}
		if err := list.Err(); err != nil {
			return fmt.Errorf("list the consumers of stream %s: %w", name, err)
		}
	}
	return nil
}
