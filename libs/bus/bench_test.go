package bus_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
)

func BenchmarkEncode(b *testing.B) {
	m := command(b, "6f7d1f7e-0000-4000-8000-000000000001/17")
	b.ReportAllocs()
	for b.Loop() {
		_, _, err := bus.Encode(&m.Event)
		require.NoError(b, err)
	}
}

func BenchmarkDecode(b *testing.B) {
	m := command(b, "6f7d1f7e-0000-4000-8000-000000000001/17")
	h, data, err := bus.Encode(&m.Event)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, err := bus.Decode(h, data)
		require.NoError(b, err)
	}
}

func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			bs, _ := setup(b)
			msgs := make([]bus.Message, size)
			for i := range msgs {
				msgs[i] = command(b, "x")
			}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				for i := range msgs {
					n++
					msgs[i].ID = fmt.Sprintf("6f7d1f7e-0000-4000-8000-000000000001/%d/1", n)
				}
				require.NoError(b, bs.Publish(b.Context(), msgs...))
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}

func BenchmarkConsume(b *testing.B) {
	bs, _ := setup(b)
	const n = 100_000
	msgs := make([]bus.Message, 1000)
	for i := range msgs {
		msgs[i] = command(b, "x")
		msgs[i].ID = ""
	}
	for b.Loop() {
		b.StopTimer()
		for range n / len(msgs) {
			require.NoError(b, bs.Publish(b.Context(), msgs...))
		}
		var got atomic.Int64
		all := make(chan struct{})
		b.StartTimer()
		stop := start(b, bs, bus.ConsumeConfig{Consumer: spec(), MaxBatch: 500, Handlers: 2}, func(_ context.Context, batch []*bus.Delivery) {
			for _, d := range batch {
				_ = d.Ack()
			}
			if got.Add(int64(len(batch))) == n {
				close(all)
			}
		})
		<-all
		stop()
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "msgs/s")
}
