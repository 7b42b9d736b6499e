package bus_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/testkit"
)

// traffic returns what a server that traces has received from its clients and sent to them, in order.
func traffic(s *testkit.NATSServer) []string { return strings.Split(s.Log(), "\n") }

// place returns the first line with this text; -1 if there is none.
func place(lines []string, text string) int {
	return slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, text) })
}

// A message that is returned while the pull request is open is redelivered to the stopping process, and may be lost with it.
func TestConsume_Stop_ReturnsMessagesAfterLastPull(t *testing.T) {
	t.Parallel()
	s := testkit.NATSWith(t, testkit.NATSConfig{Trace: true})
	others := connect(t, s, bus.Config{}, bus.Deps{})
	require.NoError(t, others.EnsureStreams(t.Context()))
	require.NoError(t, others.EnsureConsumer(t.Context(), unhurried()))
	b := connect(t, s, bus.Config{Name: "who stops"}, bus.Deps{})
	const n, rounds = 16, 5
	for round := range rounds {
		taken := make(chan []*bus.Delivery, n)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- b.Consume(ctx, bus.ConsumeConfig{Consumer: unhurried(), MaxBatch: 4, Prefetch: 8}, func(ctx context.Context, batch []*bus.Delivery) {
				taken <- batch
				<-ctx.Done()
			})
		}()
		ids := make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprintf("op/%d/%d", round, i)
		}
		publish(t, others, ids...)
		batch := within(t, taken, "the first commands")
		from := len(traffic(s)) - 1

		cancel()
		for _, d := range batch {
			if err := d.Nak(0); err != nil {
				t.Error(err)
			}
		}
		require.NoError(t, within(t, ended, "the end"))
		require.NoError(t, b.NATS().Flush())
		lines := traffic(s)[from:]
		end, first := place(lines, "[UNSUB "), place(lines, "-NAK")
		if end < 0 || first < end {
			t.Errorf("round %d: the end of the subscription is line %d, the first that is given back line %d: want it later", round, end, first)
		}

		got := make(chan string, n)
		stop := start(t, others, bus.ConsumeConfig{Consumer: unhurried(), MaxBatch: 1}, func(_ context.Context, batch []*bus.Delivery) {
			for _, d := range batch {
				if k := d.NumDelivered(); k > 2 {
					t.Errorf("round %d: %s was delivered %d times, want at most twice", round, d.Event.ID(), k)
				}
				if err := d.Ack(); err != nil {
					t.Error(err)
				}
				got <- d.Event.ID()
			}
		})
		for range ids {
			within(t, got, "a command for the other process")
		}
		stop()
	}
}
