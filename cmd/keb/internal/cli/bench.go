package cli

import (
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/bench"
)

func newBench(o *options) *cobra.Command {
	var b bench.Options
	var profile string
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
			if b.Seconds < 1 {
				return usageError("--seconds takes a number from 1, not %g", b.Seconds)
			}
			return profiled(profile, func() error { return bench.Run(cmd.Context(), b, o.Out) })
		},
	}
	flags := cmd.Flags()
	flags.IntSliceVar(&b.InFlight, "in-flight", []int{1, 50, 500, 2000}, "operations in flight, one scenario each")
	flags.Float64Var(&b.Seconds, "seconds", 10, "how long each scenario is measured")
	flags.IntSliceVar(&b.Waiting, "waiting", []int{1000, 50000}, "waiting operations at which memory is measured; 0 leaves that out")
	flags.BoolVar(&b.Floor, "floor", true, "measure the floor as well")
	flags.StringVar(&profile, "cpuprofile", "", "write a CPU profile to this file, for go tool pprof and for cmd/keb/default.pgo")
	return cmd
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
