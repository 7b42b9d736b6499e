package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// BenchmarkNoOpSteps measures throughput and cost of steps in one worker process, with a number of commands in flight. Each result sends
// the next command, as in the orchestrator. Server, worker and sender share the process.
func BenchmarkNoOpSteps(b *testing.B) {
	const concurrency = 500
	for _, inFlight := range []int{1, 50, 500} {
		b.Run(fmt.Sprintf("in-flight=%d", inFlight), func(b *testing.B) {
			o := newOrchestratorFor(b, func(o *orchestrator, ctx context.Context, done chan<- struct{}) {
				var results atomic.Int64
				err := o.bus.Consume(ctx, bus.ConsumeConfig{Consumer: event.ResultsConsumer(), MaxBatch: 500}, func(ctx context.Context, batch []*bus.Delivery) {
					n := results.Add(int64(len(batch)))
					if left := int64(b.N) - n; left > 0 {
						messages := make([]bus.Message, min(int64(len(batch)), left))
						for i := range messages {
							messages[i] = o.message(command("Noop"))
						}
						if err := o.bus.Publish(ctx, messages...); err != nil {
							b.Error(err)
						}
					}
					for _, d := range batch {
						if err := d.Ack(); err != nil {
							b.Error(err)
						}
					}
					if n >= int64(b.N) {
						select {
						case done <- struct{}{}:
						default:
						}
					}
				})
				if err != nil {
					b.Error(err)
				}
			})
			o.start([]worker.Step{noop("Noop")}, config(func(c *worker.Config) { c.Concurrency = concurrency }),
				func(_ *worker.Config, d *worker.Deps, _ *worker.Worker) { d.Log = nil })
			first := make([]event.StepExecute, inFlight)
			for i := range first {
				first[i] = command("Noop")
			}
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu(b)
			o.send(first...)
			<-o.done
			b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-us/step")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}

// cpu returns the CPU time of this process, including the server.
func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
