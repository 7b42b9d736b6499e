// Package census counts unfinished operations and orchestrations by position,
// commands that wait on the bus, and operations and steps that ended recently.
// The operator API and the metrics share its results. The results are the same
// in every orchestrator.
package census

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
	"github.com/kyma-project/keb/services/orchestrator/internal/ramp"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Operations counts unfinished operations.
type Operations interface {
	Census(ctx context.Context) (store.Census, error)
	LimitUse(ctx context.Context) (running, waiting map[limit.Queue]int, err error)
	CommandUse(ctx context.Context) (inUse, waiting map[string]int, err error)
}

// Orchestrations counts unfinished orchestrations and their operations.
type Orchestrations interface {
	Census(ctx context.Context) (orchestrations, operations []store.Standing, err error)
}

// Definitions finds process definitions.
type Definitions interface {
	Set() process.Set
	Pinned(ctx context.Context, hash string) (*process.Process, error)
}

// Workers tracks live workers.
type Workers interface {
	Serves(worker, step string) bool
	Workers() []liveness.Worker
}

// Deps are the dependencies of a Census. All are required.
type Deps struct {
	Operations     Operations
	Orchestrations Orchestrations
	Definitions    Definitions
	Workers        Workers
	// Limits returns the limits that apply, and Ramps the ramps.
	Limits    func() *limit.Set
	Ramps     func() []ramp.Ramp
	JetStream jetstream.JetStream
	Now       func() time.Time
	Log       *slog.Logger
}

// Census counts operations and commands. It is safe for concurrent use.
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

// Group is a store.Group with the names of the step that its reason belongs to. The reason may be operator.NoWorker. Worker, Stage and Step
// are empty for pending operations and at the end of a process.
type Group struct {
	store.Group
	Worker, Stage, Step string
}

// Result holds the positions of unfinished operations.
type Result struct {
	Groups []Group
	// FirstDue is the earliest time that an operation waits for; zero if none waits.
	FirstDue time.Time
}

// Read returns the counts, which may be some seconds old (see Value). The reasons use the current live workers.
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

// Group adds the names to a group, and sets the reason operator.NoWorker if no live worker serves the step of its commands.
func (c *Census) Group(ctx context.Context, g store.Group) (Group, error) {
	out := Group{Group: g}
	if g.State == event.Pending {
		return out, nil
	}
	p, err := c.deps.Definitions.Pinned(ctx, g.Definition)
	if err != nil {
		return out, err
	}
	step := p.At(g.Stage, g.ReasonStep)
	if current := p.At(g.Stage, g.Step); g.InFlight && current != nil && !c.deps.Workers.Serves(current.Worker, current.Name) {
		out.Reason, step = operator.NoWorker, current
	}
	if step != nil {
		out.Worker, out.Stage, out.Step = step.Worker, p.Stages[g.Stage].Name, step.Name
	}
	return out, nil
}
