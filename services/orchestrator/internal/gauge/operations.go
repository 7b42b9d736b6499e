package gauge

import (
	"context"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/scrape"
	"github.com/kyma-project/keb/services/orchestrator/internal/census"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

type operations struct {
	deps  Deps
	plans *scrape.Bound

	unfinished, waiting, oldest, atStep, longestAtStep, lag *scrape.Gauge
}

func newOperations(deps Deps) *scrape.Collector {
	o := &operations{
		deps: deps, plans: scrape.NewBound(maxPlans),
		unfinished: scrape.NewGauge("keb_operations_unfinished", "Operations that have not ended.", "type", "plan", "state").Remembered(),
		waiting: scrape.NewGauge("keb_operations_waiting",
			"Operations that have not ended, by why they do not move; executing is for those that do.", "type", "reason").Remembered(),
		oldest: scrape.NewGauge("keb_operations_oldest_seconds", "Age of the oldest operation that has not ended.", "type", "state").Remembered(),
		atStep: scrape.NewGauge("keb_step_operations", "Operations at a step.", "worker", "step", "condition").Remembered(),
		longestAtStep: scrape.NewGauge("keb_step_oldest_seconds",
			"How long the operation that has been at a step longest has been there.", "worker", "step", "condition").Remembered(),
		lag: scrape.NewGauge("keb_sweep_lag_seconds", "How long the most overdue timer has been due."),
	}
	return scrape.New(config(deps, "operations", age), o.read, o.unfinished, o.waiting, o.oldest, o.atStep, o.longestAtStep, o.lag)
}

func (o *operations) read(ctx context.Context, s *scrape.Sample) error {
	standing, err := o.deps.Census.Read(ctx)
	if err != nil {
		return err
	}
	now := o.deps.Now()
	o.empty(s)
	s.Max(o.lag, 0)
	s.Max(o.lag, seconds(standing.FirstDue, now))
	for i := range standing.Groups {
		o.add(s, &standing.Groups[i], now)
	}
	return nil
}

// empty makes a series of everything that is known beforehand, so that nothing is missing while there is nothing.
func (o *operations) empty(s *scrape.Sample) {
	set := o.deps.Definitions.Set()
	for t := range set {
		for _, reason := range store.Reasons() {
			s.Add(o.waiting, 0, string(t), string(reason))
		}
		for _, state := range []event.OperationState{event.Pending, event.InProgress} {
			s.Add(o.oldest, 0, string(t), string(state))
		}
	}
	steps(set, func(_ event.OperationType, step *process.Step) {
		for _, condition := range []store.Reason{store.Executing, store.WaitsForRetry, store.WaitsForWorker} {
			s.Add(o.atStep, 0, step.Worker, step.Name, string(condition))
			s.Add(o.longestAtStep, 0, step.Worker, step.Name, string(condition))
		}
	})
}

func (o *operations) add(s *scrape.Sample, g *census.Group, now time.Time) {
	n, t := float64(g.Count), string(g.Type)
	s.Add(o.unfinished, n, t, o.plans.Value(g.Plan), string(g.State))
	s.Max(o.oldest, seconds(g.Oldest, now), t, string(g.State))
	s.Add(o.waiting, n, t, string(g.Reason))
	if g.Worker == "" {
		return
	}
	since := g.TriedAt
	if g.Reason == store.WaitsForWorker {
		since = g.SentAt
	}
	s.Add(o.atStep, n, g.Worker, g.Step, string(g.Reason))
	s.Max(o.longestAtStep, seconds(since, now), g.Worker, g.Step, string(g.Reason))
}

// seconds is the time from a to b, at least 0; 0 when a is not set.
func seconds(a, b time.Time) float64 {
	if a.IsZero() {
		return 0
	}
	return max(0, b.Sub(a).Seconds())
}
