package bus_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// ranked returns a ranked consumer of commands.
func ranked() event.ConsumerSpec {
	s := spec()
	s.Ranked = true
	return s
}

// pulls waits until n clients have a pull request at the server.
func pulls(t *testing.T, b *bus.Bus, n int) {
	t.Helper()
	testkit.Eventually(t, time.Minute, fmt.Sprintf("%d ask for messages", n), func() bool {
		c, err := b.JetStream().Consumer(t.Context(), string(event.StreamCommands), "avs")
		return err == nil && c.CachedInfo().NumWaiting >= n
	})
}

func TestRankedConsumer_LowestRank_GetsAllMessages(t *testing.T) {
	t.Parallel()
	b, s := setup(t)
	other := connect(t, s, bus.Config{}, bus.Deps{})
	second := consume(t, other, bus.ConsumeConfig{Consumer: ranked(), Rank: 8})
	pulls(t, b, 1)
	release := make(chan struct{})
	const limit = 40
	first := make(chan string, 10_000)
	stop := start(t, b, bus.ConsumeConfig{Consumer: ranked(), MaxBatch: 10, Prefetch: limit, Rank: 4}, func(ctx context.Context, batch []*bus.Delivery) {
		for _, d := range batch {
			first <- d.Event.ID()
			_ = d.Ack()
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
	})
	pulls(t, b, 2)
	publish(t, b, "one")
	within(t, first, "the first in rank gets the message")

	// The first consumer is busy now, and accepts no more than it can hold.
	ids := make([]string, 3*limit)
	for i := range ids {
		ids[i] = fmt.Sprintf("op/%d/1", i)
	}
	publish(t, b, ids...)
	for range len(ids) - limit {
		within(t, second, "the second gets what the first leaves")
	}
	close(release)
	stop()
	publish(t, b, "last")
	want(t, second, "last")
}

// A frozen orchestrator is first in rank, and its pull request is open: a message must not go to it a second time.
func TestRankedConsumer_FirstFreezes_NextGetsTheRedeliveredMessage(t *testing.T) {
	t.Parallel()
	b, s := setup(t)
	orchestrators := ranked()
	orchestrators.AckWait = 3 * time.Second // longer than a pull request
	deliveries := make(chan uint64, 10)
	start(t, b, bus.ConsumeConfig{Consumer: orchestrators, Rank: 2}, func(_ context.Context, batch []*bus.Delivery) {
		for _, d := range batch {
			deliveries <- d.NumDelivered()
			_ = d.Ack()
		}
	})
	pulls(t, b, 1)
	proxy := testkit.Proxy(t, strings.TrimPrefix(s.URL(), "nats://"))
	first, err := bus.Connect(t.Context(), bus.Config{URL: "nats://" + proxy.Addr()}, bus.Deps{})
	require.NoError(t, err)
	t.Cleanup(first.Close)
	start(t, first, bus.ConsumeConfig{Consumer: orchestrators, Rank: 1}, func(context.Context, []*bus.Delivery) {})
	pulls(t, b, 2)
	proxy.Stall()
	t.Cleanup(proxy.Restore)
	publish(t, b, "one")
	if n := within(t, deliveries, "the next gets the message"); n != 2 {
		t.Errorf("the message was delivered %d times, want twice: to the frozen one and to the next", n)
	}
}

func TestEnsureConsumer_WithoutRanks_GetsThem(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	require.NoError(t, b.EnsureConsumer(t.Context(), spec()))
	got := consume(t, b, bus.ConsumeConfig{Consumer: ranked()})
	publish(t, b, "one")
	want(t, got, "one")
}
