package gauge

import (
	"context"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/scrape"
)

type workers struct {
	deps             Deps
	names            *scrape.Bound
	replicas, served *scrape.Gauge
}

func newWorkers(deps Deps) *scrape.Collector {
	w := &workers{
		deps: deps, names: scrape.NewBound(maxWorkers, deps.Definitions.Set().Workers()...),
		replicas: scrape.NewGauge("keb_worker_replicas", "Live replicas of a worker.", "worker").Remembered(),
		served: scrape.NewGauge("keb_worker_step_served",
			"1 when a live replica serves a step of the processes, else 0.", "worker", "step"),
	}
	return scrape.New(config(deps, "workers", instant), w.read, w.replicas, w.served)
}

func (w *workers) read(_ context.Context, s *scrape.Sample) error {
	set := w.deps.Definitions.Set()
	for _, name := range set.Workers() {
		s.Add(w.replicas, 0, name)
	}
	for _, live := range w.deps.Workers.Workers() {
		s.Add(w.replicas, float64(live.Replicas), w.names.Value(live.Name))
	}
	steps(set, func(_ event.OperationType, step *process.Step) {
		served := 0.0
		if w.deps.Workers.Serves(step.Worker, step.Name) {
			served = 1
		}
		s.Max(w.served, served, step.Worker, step.Name)
	})
	return nil
}
