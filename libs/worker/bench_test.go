package worker_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// BenchmarkNoOpSteps measures steps per second of one worker process with 500 commands in flight: each result sends
// the next command, as the orchestrator would. Server, worker and the one that sends share the process.
func BenchmarkNoOpSteps(b *testing.B) {
	for name, concurrency := range map[string]int{"concurrency=32": 32, "concurrency=500": 500} {
		b.Run(name, func(b *testing.B) {
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
			first := make([]event.StepExecute, 500)
			for i := range first {
				first[i] = command("Noop")
			}
			b.ResetTimer()
			o.send(first...)
			<-o.done
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}
