// Package bench measures the throughput of the engine with its real parts: the
// real provisioning process, the real orchestrator, the real worker SDK with
// steps that do nothing, an embedded NATS server with file storage and a
// Postgres server with fsync on. In the same run it measures the floor: the
// same messages and the same rows with none of our code in between.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/kyma-project/keb/libs/postgres/pglocal"
)

// Options selects what Run measures.
type Options struct {
	// InFlight lists the numbers of operations in flight, one scenario each.
	InFlight []int
	// Seconds is the approximate duration of each scenario.
	Seconds float64
	// Waiting lists the numbers of waiting operations at which memory is measured; empty skips this measurement.
	Waiting []int
	// Floor selects whether the floor is measured too.
	Floor bool
	// NATS lists the storage modes, each measured with each of InFlight; empty means OneServer. Memory is measured with OneServer.
	NATS []Keeping
	// Workers are the workers of the process. If set, NATS has the users and accounts of an installation, except for the floor.
	Workers []string
	// Log receives the logs of all parts.
	Log *slog.Logger
}

// result is one line of output.
type result struct {
	Scenario            string  `json:"scenario"`
	NATS                Keeping `json:"nats"`
	Users               bool    `json:"users,omitempty"`
	InFlight            int     `json:"inFlight"`
	Operations          int     `json:"operations"`
	StepsPerSecond      float64 `json:"stepsPerSecond"`
	OperationsPerSecond float64 `json:"operationsPerSecond"`
	P50MS               float64 `json:"p50Ms"`
	P95MS               float64 `json:"p95Ms"`
	P99MS               float64 `json:"p99Ms"`
	CPUMSPerStep        float64 `json:"cpuMsPerStep"`
	CommitsPerStep      float64 `json:"commitsPerStep"`
	FsyncsPerStep       float64 `json:"fsyncsPerStep"`
	WALBytesPerStep     float64 `json:"walBytesPerStep"`
	PeakMemoryMB        float64 `json:"peakMemoryMB"`
	// Ratio is StepsPerSecond divided by that of the floor in the same run.
	Ratio float64 `json:"ratioToFloor,omitempty"`
}

// memoryResult is one line of output about waiting operations.
type memoryResult struct {
	Scenario string  `json:"scenario"`
	Waiting  int     `json:"waiting"`
	HeapMB   float64 `json:"heapMB"`
	// IdleStatementsPerSecond is the number of transactions per second that keb starts while it is idle.
	IdleStatementsPerSecond float64 `json:"idleStatementsPerSecond"`
}

// Run measures and prints one JSON line per scenario.
func Run(ctx context.Context, o Options, out io.Writer) error {
	return onPostgres(ctx, o.Log, func(dir string, pg *pglocal.Server, log *slog.Logger) error {
		o.Log = log
		return o.run(ctx, dir, pg, json.NewEncoder(out))
	})
}

func (o *Options) run(ctx context.Context, dir string, pg *pglocal.Server, print *json.Encoder) error {
	keepings := o.NATS
	if len(keepings) == 0 {
		keepings = []Keeping{OneServer}
	}
	for _, keeping := range keepings {
		for i, inFlight := range o.InFlight {
			m := &machine{dir: filepath.Join(dir, fmt.Sprintf("run-%s-%d", keeping, i)), pg: pg, keeping: keeping, workers: o.Workers, log: o.Log}
			if err := o.measure(ctx, m, inFlight, print); err != nil {
				return err
			}
		}
	}
	if len(o.Waiting) == 0 {
		return nil
	}
	m := &machine{dir: filepath.Join(dir, "waiting"), pg: pg, keeping: OneServer, log: o.Log}
	return runWaiting(ctx, m, o.Waiting, func(r memoryResult) error { return print.Encode(r) })
}

// measure runs one scenario, with its floor.
func (o *Options) measure(ctx context.Context, m *machine, inFlight int, print *json.Encoder) error {
	load := load{inFlight: inFlight, warmUp: time.Second, measure: time.Duration(o.Seconds * float64(time.Second))}
	keb, err := runKEB(ctx, m, load)
	if err != nil {
		return fmt.Errorf("bench with %d in flight: %w", inFlight, err)
	}
	keb.NATS, keb.Users = m.keeping, len(m.workers) > 0
	if !o.Floor {
		return print.Encode(keb)
	}
	plain := *m
	plain.workers = nil
	floor, err := runFloor(ctx, &plain, load)
	if err != nil {
		return fmt.Errorf("floor with %d in flight: %w", inFlight, err)
	}
	floor.NATS = m.keeping
	if floor.StepsPerSecond > 0 {
		keb.Ratio = keb.StepsPerSecond / floor.StepsPerSecond
	}
	return errors.Join(print.Encode(keb), print.Encode(floor))
}
