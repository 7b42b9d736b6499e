package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/postgres/pglocal"
	"github.com/kyma-project/keb/libs/worker"
)

// OutageOptions sets what RunOutage measures.
type OutageOptions struct {
	// Operations is the number of operations that fail at the system that is away.
	Operations int
	// Away is how long the outage lasts after the first call of each operation.
	Away time.Duration
	// StepTime is the duration of each call, and Concurrency the number of calls that the worker makes at a time.
	StepTime    time.Duration
	Concurrency int
	// Log receives the logs of all parts.
	Log *slog.Logger
}

// failingStep is the step whose system is away.
const failingStep = "EDP_Registration"

var errAway = errors.New("503 Service Unavailable")

// outage is an external system that is away. It counts its calls.
type outage struct {
	mu    sync.Mutex
	away  bool
	begun time.Time
	// perSecond counts the calls by the second since begun.
	perSecond []int
	seen      map[string]bool
	succeeded int
	// changed is signalled after each call.
	changed chan struct{}
}

func (o *outage) call(operation string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	second := int(time.Since(o.begun) / time.Second)
	for len(o.perSecond) <= second {
		o.perSecond = append(o.perSecond, 0)
	}
	o.perSecond[second]++
	o.seen[operation] = true
	if !o.away {
		o.succeeded++
	}
	select {
	case o.changed <- struct{}{}:
	default:
	}
	if o.away {
		return errAway
	}
	return nil
}

// set begins or ends the outage, and returns the calls per second since the last change.
func (o *outage) set(away bool) []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	calls := o.perSecond
	o.away, o.begun, o.perSecond = away, time.Now(), nil
	return calls
}

// await waits until enough returns true.
func (o *outage) await(ctx context.Context, enough func() bool) error {
	for {
		o.mu.Lock()
		done := enough()
		o.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-o.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// outageResult is the line of output.
type outageResult struct {
	Scenario   string `json:"scenario"`
	Operations int    `json:"operations"`
	// AwayPerSecond and AwayPeak are the mean and the maximum of the calls per second in the second half of the outage, when all operations
	// wait for their next try.
	AwayPerSecond float64 `json:"awayPerSecond"`
	AwayPeak      int     `json:"awayPeak"`
	// Capacity is how many calls per second the worker can make, and PerSecond how many succeeded per second until nine of ten operations
	// had passed. Peak is the maximum.
	Capacity  float64 `json:"capacity"`
	PerSecond float64 `json:"perSecond"`
	Peak      int     `json:"peak"`
	// FirstMS, HalfMS, MostMS and AllMS are the times from the end of the outage until one, half, nine of ten, and all operations had passed.
	FirstMS float64 `json:"firstMs"`
	HalfMS  float64 `json:"halfMs"`
	MostMS  float64 `json:"mostMs"`
	AllMS   float64 `json:"allMs"`
}

// RunOutage measures how many operations that wait for a system call it while it is away, and how they continue when it is back. It prints one
// JSON line.
func RunOutage(ctx context.Context, o OutageOptions, out io.Writer) error {
	return onPostgres(ctx, o.Log, func(dir string, pg *pglocal.Server, log *slog.Logger) error {
		r, err := o.run(ctx, &machine{dir: dir, pg: pg, log: log})
		if err != nil {
			return fmt.Errorf("outage: %w", err)
		}
		return json.NewEncoder(out).Encode(r)
	})
}

func (o *OutageOptions) run(ctx context.Context, m *machine) (r outageResult, err error) {
	r = outageResult{Scenario: "outage", Operations: o.Operations, Capacity: float64(o.Concurrency) / o.StepTime.Seconds()}
	p, err := m.parts(ctx, "outage")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	system := &outage{away: true, begun: time.Now(), seen: map[string]bool{}, changed: make(chan struct{}, 1)}
	i, err := install(ctx, p, m.log, layout{concurrency: o.Concurrency, step: func(name string) noOp {
		s := noOp{name: name}
		if name == failingStep {
			s.takes, s.system = o.StepTime, system
		}
		return s
	}})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, i.stop()) }()
	if err := i.begin(ctx, o.Operations, func(string) {}); err != nil {
		return r, err
	}
	if err := system.await(ctx, func() bool { return len(system.seen) == o.Operations }); err != nil {
		return r, err
	}
	system.set(true)
	if err := wait(ctx, o.Away); err != nil {
		return r, err
	}
	calls := system.set(false)
	begun := time.Now()
	half := calls[len(calls)/2:]
	r.AwayPeak = slices.Max(half)
	for _, n := range half {
		r.AwayPerSecond += float64(n)
	}
	r.AwayPerSecond = round(r.AwayPerSecond/float64(len(half)), 1)
	for _, goal := range []struct {
		operations int
		into       *float64
	}{{1, &r.FirstMS}, {o.Operations / 2, &r.HalfMS}, {o.Operations * 9 / 10, &r.MostMS}, {o.Operations, &r.AllMS}} {
		if err := system.await(ctx, func() bool { return system.succeeded >= goal.operations }); err != nil {
			return r, err
		}
		*goal.into = milliseconds(time.Since(begun))
	}
	r.PerSecond = round(float64(o.Operations)*0.9/(r.MostMS/1000), 1)
	r.Peak = slices.Max(system.set(false))
	return r, nil
}

// try calls the system of the step, if it has one.
func (s noOp) try(op worker.Operation) error {
	if s.system == nil {
		return nil
	}
	return s.system.call(op.ID)
}
