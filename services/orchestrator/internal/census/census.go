// Package census counts what an orchestrator can find out: where unfinished
// operations and orchestrations stand, which commands wait on the bus, and what
// ended lately. It counts once for all callers: the operator API and the
// metrics. Every orchestrator shows the same.
package census

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Operations counts operations that have not ended.
type Operations interface {
	Census(ctx context.Context) (store.Census, error)
}

// Orchestrations counts orchestrations that have not ended, and their operations.
type Orchestrations interface {
	Census(ctx context.Context) (orchestrations, operations []store.Standing, err error)
}

// Definitions finds process definitions.
type Definitions interface {
	Set() process.Set
	Pinned(ctx context.Context, hash string) (*process.Process, error)
}

// Workers knows the live workers.
type Workers interface {
	Serves(worker, step string) bool
	Workers() []liveness.Worker
}

// Deps is what a Census counts with. All are required.
type Deps struct {
	Operations     Operations
	Orchestrations Orchestrations
	Definitions    Definitions
	Workers        Workers
	JetStream      jetstream.JetStream
	Now            func() time.Time
	Log            *slog.Logger
}

// Census is safe for concurrent use.
type Census struct {
	deps    Deps
	counted *Value[store.Census]
	depths  *Value[depths]
}

// New returns a Census.
func New(deps Deps) *Census {
	c := &Census{deps: deps, counted: NewValue(deps.Operations.Census)}
	c.depths = NewValue(c.readDepths)
	return c
}

// Group is a number of operations at the same place, with what they wait for. Worker, Stage and Step are empty before an operation
// has started, and Worker also at the end of a process.
type Group struct {
	store.Group
	Reason              store.Reason
	Worker, Stage, Step string
}

// Result is where operations stand.
type Result struct {
	Groups []Group
	// FirstDue is the earliest time that an operation waits for; zero when none does.
	FirstDue time.Time
}

// Read counts the operations, at most some seconds ago (see Value). Which workers live is looked up now.
func (c *Census) Read(ctx context.Context) (Result, error) {
	counted, err := c.counted.Get(ctx)
	if err != nil {
		return Result{}, err
	}
	r := Result{Groups: make([]Group, len(counted.Groups)), FirstDue: counted.FirstDue}
	for i, g := range counted.Groups {
		if r.Groups[i], err = c.Group(ctx, g); err != nil {
			return Result{}, err
		}
	}
	return r, nil
}

// Group finds what a group waits for.
func (c *Census) Group(ctx context.Context, g store.Group) (Group, error) {
	out := Group{Group: g, Reason: store.WaitsForAdmission}
	if g.State == event.Pending {
		if g.Held {
			out.Reason = store.WaitsForInstance
		}
		return out, nil
	}
	p, err := c.deps.Definitions.Pinned(ctx, g.Definition)
	if err != nil {
		return out, err
	}
	out.Reason = store.Executing
	if g.Held {
		out.Reason = store.WaitsForRetry
	}
	if g.Stage < 0 || g.Stage >= len(p.Stages) || g.Step < 0 || g.Step >= len(p.Stages[g.Stage].Steps) {
		return out, nil
	}
	step := &p.Stages[g.Stage].Steps[g.Step]
	out.Worker, out.Stage, out.Step = step.Worker, p.Stages[g.Stage].Name, step.Name
	if !g.Held && !c.deps.Workers.Serves(step.Worker, step.Name) {
		out.Reason = store.WaitsForWorker
	}
	return out, nil
}
