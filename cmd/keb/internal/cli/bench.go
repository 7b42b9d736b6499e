package cli

import (
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/bench"
)

func newBench(o *options) *cobra.Command {
	var b bench.Options
	var profile string
	var keepings []string
	var users bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure throughput, latency and cost per step, and the floor; one JSON line per scenario",
		Long: `Measure throughput, latency and cost per step of the real provisioning process with workers that do nothing,
on an embedded NATS server with file storage and a Postgres server of its own with fsync on. In the same run the floor is
measured: the same messages and rows with none of our code in between. Run it on a quiet machine; it needs no running system.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(b.Waiting) == 1 && b.Waiting[0] == 0 {
				b.Waiting = nil
			}
			for _, n := range append(slices.Clone(b.InFlight), b.Waiting...) {
				if n < 1 {
					return usageError("--in-flight and --waiting take numbers from 1, not %d", n)
				}
			}
			for _, name := range keepings {
				if !slices.Contains(bench.Keepings(), bench.Keeping(name)) {
					return usageError("--nats takes %s, not %q", strings.Join(names(bench.Keepings()), ", "), name)
				}
				b.NATS = append(b.NATS, bench.Keeping(name))
			}
			if b.Seconds < 1 {
				return usageError("--seconds takes a number from 1, not %g", b.Seconds)
			}
			if users {
				var err error
				if b.Workers, err = allWorkers(nil); err != nil {
					return err
				}
			}
			return profiled(profile, func() error { return bench.Run(cmd.Context(), b, o.Out) })
		},
	}
	flags := cmd.Flags()
	flags.IntSliceVar(&b.InFlight, "in-flight", []int{1, 50, 500, 2000}, "operations in flight, one scenario each")
	flags.Float64Var(&b.Seconds, "seconds", 10, "how long each scenario is measured")
	flags.IntSliceVar(&b.Waiting, "waiting", []int{1000, 50000}, "waiting operations at which memory is measured; 0 leaves that out")
	flags.BoolVar(&b.Floor, "floor", true, "measure the floor as well")
	flags.StringSliceVar(&keepings, "nats", []string{string(bench.OneServer)},
		"how NATS keeps messages, one scenario each: by one server (r1) or a cluster of three (r3), and flushed before it answers (-always)")
	flags.BoolVar(&users, "users", false, "give NATS the users and accounts of an installation, and each worker a connection; the floor has none")
	flags.StringVar(&profile, "cpuprofile", "", "write a CPU profile to this file, for go tool pprof and for cmd/keb/default.pgo")
	cmd.AddCommand(newBenchScale(o), newBenchFairness(o), newBenchOutage(o))
	return cmd
}

func newBenchScale(o *options) *cobra.Command {
	var s bench.ScaleOptions
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Measure throughput on a full database, while operations are archived, and with several orchestrators",
		Long: `Measure throughput on a database full of operations that have ended and that wait, in relation to an empty one, also while
old operations are archived; and with several orchestrators side by side, in relation to one. The runs that are compared take
turns. It prints one JSON line per run, and one with the median and the ratio per comparison. Filling the database with
a million operations takes minutes and about 7 GB of disk.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, n := range slices.Concat(s.InFlight, s.Orchestrators, []int{s.Finished, s.Waiting, s.Rounds}) {
				if n < 1 {
					return usageError("numbers start at 1: %d is none", n)
				}
			}
			if s.Seconds < 1 {
				return usageError("--seconds takes a number from 1, not %g", s.Seconds)
			}
			return bench.RunScale(cmd.Context(), s, o.Out)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&s.Finished, "finished", 1_000_000, "operations in the full database that have ended")
	flags.IntVar(&s.Waiting, "waiting", 100_000, "operations in the full database that wait")
	flags.IntSliceVar(&s.InFlight, "in-flight", []int{50, 500}, "operations in flight")
	flags.IntSliceVar(&s.Orchestrators, "orchestrators", []int{1, 2, 4}, "numbers of orchestrators side by side")
	flags.IntVar(&s.Rounds, "rounds", 3, "how often each run is repeated")
	flags.Float64Var(&s.Seconds, "seconds", 10, "how long each run is measured")
	return cmd
}

func newBenchFairness(o *options) *cobra.Command {
	var f bench.FairnessOptions
	cmd := &cobra.Command{
		Use:   "fairness",
		Short: "Measure how long an order takes while thousands of operations of others wait and run",
		Long: `Measure how long the order of one global account takes on an idle system, and on the same system with thousands of orders
of another account or upgrades of many runtimes. Each step takes the time that an external system needs, and two steps wait for
theirs. The workers have their usual concurrency, and the limits are those that docs/production.md recommends. It prints one JSON
line per case.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Others < 1 || f.Orders < 1 {
				return usageError("--others and --orders take numbers from 1")
			}
			for _, name := range f.Cases {
				if !slices.Contains(bench.FairnessCases(), name) {
					return usageError("--case takes one of %q, not %q", bench.FairnessCases(), name)
				}
			}
			return bench.RunFairness(cmd.Context(), f, o.Out)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.Others, "others", 10_000, "operations of the others")
	flags.IntVar(&f.Orders, "orders", 5, "orders that are measured on the idle and on the busy system, one after the other")
	flags.StringArrayVar(&f.Cases, "case", nil, "a case to run; may be repeated; without it all cases run")
	flags.DurationVar(&f.StepTime, "step-time", 100*time.Millisecond, "how long each step takes")
	flags.DurationVar(&f.PollEvery, "poll-every", time.Second, "how long a step waits for its system, three times")
	flags.DurationVar(&f.Patience, "patience", 5*time.Minute, "how long to wait for an order")
	return cmd
}

func newBenchOutage(o *options) *cobra.Command {
	var b bench.OutageOptions
	cmd := &cobra.Command{
		Use:   "outage",
		Short: "Measure the calls to a system that is away, and how operations continue when it is back",
		Long: `Measure how often thousands of operations call an external system that is away (EDP_Registration of the provisioning, with its
retry intervals), and how fast they continue when it is back. It prints one JSON line.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case b.Operations < 10 || b.Concurrency < 1:
				return usageError("--operations takes a number from 10, --concurrency one from 1")
			case b.Away < 2*time.Second || b.StepTime <= 0:
				return usageError("--away takes a time from 2s, --step-time a positive one")
			}
			return bench.RunOutage(cmd.Context(), b, o.Out)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&b.Operations, "operations", 10_000, "operations that wait for the system")
	flags.DurationVar(&b.Away, "away", 4*time.Minute, "how long the outage lasts after the first call of each operation")
	flags.DurationVar(&b.StepTime, "step-time", 100*time.Millisecond, "how long each call takes")
	flags.IntVar(&b.Concurrency, "concurrency", 32, "calls that the worker makes at a time")
	return cmd
}

func names(keepings []bench.Keeping) []string {
	texts := make([]string, len(keepings))
	for i, k := range keepings {
		texts[i] = string(k)
	}
	return texts
}

// profiled runs f and writes its CPU profile to a file; an empty name means none.
func profiled(name string, f func() error) (err error) {
	if name == "" {
		return f()
	}
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("--cpuprofile: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return fmt.Errorf("--cpuprofile: %w", err)
	}
	defer pprof.StopCPUProfile()
	return f()
}
