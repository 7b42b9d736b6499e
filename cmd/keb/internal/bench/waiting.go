package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

const (
	// retryAfter keeps the operations waiting for the whole run.
	retryAfter = time.Hour
	// idleFor is longer than the duplicate window of the NATS server.
	idleFor    = event.DuplicateWindow + 5*time.Second
	settle     = 100 * time.Millisecond
	bytesPerMB = 1 << 20
)

// firstStep is the first step of the provisioning that a worker executes.
const firstStep = "Provision_Initialization"

// waitsOnce makes the first step of each operation wait.
func waitsOnce(name string) noOp {
	step := noOp{name: name, after: retryAfter}
	if name == firstStep {
		step.tries = 1
	}
	return step
}

// runWaiting measures memory with growing numbers of operations that wait for a retry, and the load of an idle keb.
func runWaiting(ctx context.Context, m *machine, numbers []int, report func(memoryResult) error) (err error) {
	p, err := m.parts(ctx, "waiting")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	i, err := install(ctx, p, m.log, layout{step: waitsOnce})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.stop()) }()
	// The server's own maintenance also counts as transactions.
	for _, statement := range []string{`ALTER SYSTEM SET autovacuum = off`, `SELECT pg_reload_conf()`} {
		if _, err := p.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("turn autovacuum off: %w", err)
		}
	}
	tick := time.NewTicker(settle)
	defer tick.Stop()
	there := 0
	for _, number := range numbers {
		for there < number {
			n := min(1000, number-there)
			if err := i.begin(ctx, n, func(string) {}); err != nil {
				return err
			}
			there += n
		}
		for waiting := 0; waiting < number; <-tick.C {
			if err := p.db.GetContext(ctx, &waiting, `SELECT count(*) FROM orchestrator.operations WHERE due_at IS NOT NULL`); err != nil {
				return fmt.Errorf("count waiting operations: %w", err)
			}
		}
		// Postgres counts a transaction only when its connection has been idle for a while.
		if err := wait(ctx, idleFor/2); err != nil {
			return err
		}
		before, err := m.usage(ctx, p.db)
		if err != nil {
			return err
		}
		if err := wait(ctx, idleFor/2); err != nil {
			return err
		}
		after, err := m.usage(ctx, p.db)
		if err != nil {
			return err
		}
		runtime.GC()
		runtime.GC() // again, for memory held by finalizers and pools
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		r := memoryResult{
			Scenario: "waiting", Waiting: number, HeapMB: round(float64(stats.HeapInuse)/bytesPerMB, 1),
			// One of them is the benchmark's own query.
			IdleStatementsPerSecond: round(float64(after.commits-before.commits-1)/(idleFor/2).Seconds(), 2),
		}
		if err := report(r); err != nil {
			return err
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
