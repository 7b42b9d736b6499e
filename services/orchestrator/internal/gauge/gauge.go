// Package gauge shows in metrics what an orchestrator can find out: where the
// operations and orchestrations stand that have not ended, what waits on the
// bus, and which workers live. Every orchestrator shows the same.
package gauge

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/scrape"
	"github.com/kyma-project/keb/services/orchestrator/internal/census"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// age is how old values may be: a step without a worker must be seen soon. A slow database is asked less often.
	age = 2 * time.Second
	// limit is enough to count 100,000 operations on a busy machine.
	limit = 4 * time.Second
	// instant is for what costs nothing to find out.
	instant = 100 * time.Millisecond
	// maxPlans, maxWorkers and maxConsumers bound labels that others choose.
	maxPlans, maxWorkers, maxConsumers = 64, 64, 128
)

// Census tells where the operations stand that have not ended.
type Census interface {
	Read(ctx context.Context) (census.Result, error)
}

// Orchestrations counts orchestrations that have not ended, and their operations.
type Orchestrations interface {
	Census(ctx context.Context) (orchestrations, operations []store.Standing, err error)
}

// Definitions finds process definitions.
type Definitions interface {
	Set() process.Set
}

// Workers knows who is alive.
type Workers interface {
	Serves(worker, step string) bool
	Workers() []liveness.Worker
}

// Deps is what the gauges are read from. All are required.
type Deps struct {
	Census         Census
	Orchestrations Orchestrations
	Definitions    Definitions
	Workers        Workers
	JetStream      jetstream.JetStream
	Now            func() time.Time
	Log            *slog.Logger
}

// Register registers the gauges.
func Register(r prometheus.Registerer, deps Deps) error {
	return errors.Join(
		r.Register(newOperations(deps)), r.Register(newOrchestrations(deps)), r.Register(newWorkers(deps)), r.Register(newBus(deps)),
	)
}

func config(deps Deps, source string, age time.Duration) scrape.Config {
	return scrape.Config{Source: source, Age: age, Limit: limit, Log: deps.Log}
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
