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

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres/pglocal"
)

// FairnessOptions sets what RunFairness measures.
type FairnessOptions struct {
	// Others is the number of operations that the others have ordered.
	Others int
	// Orders is the number of orders that are measured, one after the other, on the idle and on the busy system.
	Orders int
	// Cases lists the names of the cases to run; empty means all.
	Cases []string
	// StepTime is the duration of each step, and PollEvery the interval at which two of the steps wait; they wait three times.
	StepTime, PollEvery time.Duration
	// Patience bounds the time for each order.
	Patience time.Duration
	// Log receives the logs of all parts.
	Log *slog.Logger
}

// polls is how often a step waits, for example for a cluster.
const polls = 3

// waitingSteps are the steps that wait for their system.
var waitingSteps = []string{"Check_Runtime", "Check_Cluster_Configuration"}

// workerConcurrency is the default of KEB_WORKER_CONCURRENCY.
const workerConcurrency = 32

// fairnessCase is a load with its limits.
type fairnessCase struct {
	name string
	// upgrades means that the others are upgrades of many runtimes, and not orders of one global account.
	upgrades bool
	limits   string
}

const (
	// recommended are the limits of docs/production.md.
	recommended = `
limits:
  - {name: customers, scope: {type: [provision, update, deprovision]}, operations: 500}
  - {name: account, scope: {type: [provision, update, deprovision]}, each: globalAccount, operations: 100}
  - {name: upgrades, scope: {type: [upgradeKyma, upgradeCluster]}, operations: 50}
`
	// total has no limit for each global account.
	total = `
limits:
  - {name: customers, scope: {type: [provision, update, deprovision]}, operations: 200}
`
	// shared has one limit for all types of operations.
	shared = `
limits:
  - {name: all, operations: 200}
`
)

func fairnessCases() []fairnessCase {
	return []fairnessCase{
		{name: "orders, recommended limits", limits: recommended},
		{name: "upgrades, recommended limits", upgrades: true, limits: recommended},
		{name: "orders, one limit for all accounts", limits: total},
		{name: "upgrades, one limit for all operations", upgrades: true, limits: shared},
		{name: "orders, no limits"},
		{name: "upgrades, no limits", upgrades: true},
	}
}

// FairnessCases returns the names of all cases.
func FairnessCases() (names []string) {
	for _, c := range fairnessCases() {
		names = append(names, c.name)
	}
	return names
}

// fairnessResult is one line of output.
type fairnessResult struct {
	Scenario string `json:"scenario"`
	Case     string `json:"case"`
	Others   int    `json:"others"`
	// IdleMS and BusyMS are the medians of the times of orders, and SlowestMS the longest time on the busy system.
	IdleMS    float64 `json:"idleMs"`
	BusyMS    float64 `json:"busyMs"`
	SlowestMS float64 `json:"slowestMs"`
	// Ratio is BusyMS divided by IdleMS, and SlowestRatio that of SlowestMS.
	Ratio        float64 `json:"ratio"`
	SlowestRatio float64 `json:"slowestRatio"`
	// BehindMS is the time of an order that was published right after the requests of the others, before they were accepted.
	BehindMS float64 `json:"behindMs"`
	// AcceptedMS is the time in which the requests of the others were accepted, and InProgress how many of them were in progress at the end.
	AcceptedMS float64 `json:"acceptedMs"`
	InProgress int     `json:"inProgress"`
	// StartMS is the longest time from the request of an order on the busy system to its start; the rest of its time is that of its steps.
	StartMS float64 `json:"startMs"`
	// Unfinished counts orders that did not end within Patience, which their times then are.
	Unfinished int `json:"unfinished,omitempty"`
}

// RunFairness measures how long the order of a global account takes on an idle system, and while many operations of others are pending and
// in progress. It prints one JSON line per case.
func RunFairness(ctx context.Context, o FairnessOptions, out io.Writer) error {
	return onPostgres(ctx, o.Log, func(dir string, pg *pglocal.Server, log *slog.Logger) error {
		m := &machine{dir: dir, pg: pg, log: log}
		for _, c := range fairnessCases() {
			if len(o.Cases) > 0 && !slices.Contains(o.Cases, c.name) {
				continue
			}
			r, err := o.run(ctx, m, &c)
			if err == nil {
				err = json.NewEncoder(out).Encode(r)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		return nil
	})
}

func (o *FairnessOptions) step(name string) noOp {
	s := noOp{name: name, takes: o.StepTime, after: o.PollEvery}
	if slices.Contains(waitingSteps, name) {
		s.tries = polls
	}
	return s
}

func (o *FairnessOptions) run(ctx context.Context, m *machine, c *fairnessCase) (r fairnessResult, err error) {
	r = fairnessResult{Scenario: "fairness", Case: c.name, Others: o.Others}
	p, err := m.parts(ctx, "fairness")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	i, err := install(ctx, p, m.log, layout{step: o.step, concurrency: workerConcurrency, limits: c.limits})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, i.stop()) }()
	w := &waiter{patience: o.Patience, ended: map[string]chan struct{}{}}
	sub, err := i.bus.NATS().Subscribe(event.FactSubject(event.Provision, event.TypeOperationSucceeded), w.see)
	if err != nil {
		return r, fmt.Errorf("follow the facts: %w", err)
	}
	defer func() { err = errors.Join(err, sub.Unsubscribe()) }()

	if _, err := w.order(ctx, i); err != nil { // until all parts are ready
		return r, err
	}
	idle, err := w.orders(ctx, i, o.Orders)
	if err != nil {
		return r, err
	}
	begun := time.Now()
	if err := i.request(ctx, o.others(c), func(string) {}); err != nil {
		return r, err
	}
	behind, err := w.order(ctx, i)
	if err != nil {
		return r, err
	}
	const acceptedSQL = `SELECT count(*) FROM orchestrator.operations`
	tick := time.NewTicker(settle)
	defer tick.Stop()
	for accepted := 0; accepted < o.Others; <-tick.C {
		if err := p.db.GetContext(ctx, &accepted, acceptedSQL); err != nil {
			return r, fmt.Errorf("count operations: %w", err)
		}
	}
	r.AcceptedMS = milliseconds(time.Since(begun))
	accepted := time.Now()
	busy, err := w.orders(ctx, i, o.Orders)
	if err != nil {
		return r, err
	}
	if err := p.db.GetContext(ctx, &r.InProgress, acceptedSQL+` WHERE state = 'in progress'`); err != nil {
		return r, fmt.Errorf("count operations: %w", err)
	}
	if err := p.db.GetContext(ctx, &r.StartMS, startSQL, newOperation().Context.GlobalAccountID, accepted); err != nil {
		return r, fmt.Errorf("read the times of orders: %w", err)
	}
	t0 := median(idle)
	r.IdleMS, r.BusyMS, r.SlowestMS, r.BehindMS = t0, median(busy), slices.Max(busy), behind
	r.Ratio, r.SlowestRatio, r.Unfinished = round(r.BusyMS/t0, 2), round(r.SlowestMS/t0, 2), w.unfinished
	return r, nil
}

const startSQL = `
SELECT COALESCE(max(round((1000 * extract(epoch FROM started_at - created_at))::numeric, 1)), 0) FROM orchestrator.operations
WHERE global_account = $1 AND created_at >= $2`

// others returns the operations of the others, each on an instance of its own.
func (o *FairnessOptions) others(c *fairnessCase) []event.Operation {
	operations, orchestration := make([]event.Operation, o.Others), uuid.NewString()
	for k := range operations {
		op := newOperation()
		op.Context.GlobalAccountID = "other"
		if c.upgrades {
			op.Type, op.Context.GlobalAccountID = event.UpgradeKyma, uuid.NewString()
			op.Upgrade = &event.Upgrade{OrchestrationID: orchestration}
		}
		operations[k] = op
	}
	return operations
}

// waiter measures orders.
type waiter struct {
	patience   time.Duration
	unfinished int

	mu    sync.Mutex
	ended map[string]chan struct{}
}

func (w *waiter) see(msg *nats.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end, ok := w.ended[operationOf(msg)]; ok {
		close(end)
		delete(w.ended, operationOf(msg))
	}
}

// orders places orders one after the other, and returns their times in milliseconds.
func (w *waiter) orders(ctx context.Context, i *installation, n int) ([]float64, error) {
	times := make([]float64, n)
	for k := range times {
		var err error
		if times[k], err = w.order(ctx, i); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// order places an order, and returns its time in milliseconds.
func (w *waiter) order(ctx context.Context, i *installation) (float64, error) {
	end := make(chan struct{})
	begun := time.Now()
	err := i.begin(ctx, 1, func(id string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended[id] = end
	})
	if err != nil {
		return 0, err
	}
	timer := time.NewTimer(w.patience)
	defer timer.Stop()
	select {
	case <-end:
	case <-timer.C:
		w.unfinished++
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return milliseconds(time.Since(begun)), nil
}

func milliseconds(d time.Duration) float64 { return round(d.Seconds()*1000, 1) }
