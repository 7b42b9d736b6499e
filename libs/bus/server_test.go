package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup returns a bus with all streams, and its server.
func setup(t testing.TB) (*bus.Bus, *testkit.NATSServer) {
	t.Helper()
	s := testkit.NATS(t)
	b := connect(t, s, bus.Config{}, bus.Deps{})
	require.NoError(t, b.EnsureStreams(t.Context()))
	return b, s
}

func connect(t testing.TB, s *testkit.NATSServer, cfg bus.Config, deps bus.Deps) *bus.Bus {
	t.Helper()
	cfg.URL = s.URL()
	b, err := bus.Connect(t.Context(), cfg, deps)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// command returns a small event for the command stream.
func command(t testing.TB, id string) bus.Message {
	t.Helper()
	e, err := bus.New(event.TypeStepExecute, id, event.SourceOrchestrator, "op", time.Unix(1_800_000_000, 0).UTC(),
		map[string]string{"id": id})
	require.NoError(t, err)
	return bus.Message{Subject: event.CommandSubject("avs", "AVS_Tags"), ID: id, Event: e}
}

func spec() event.ConsumerSpec { return event.CommandsConsumer("avs") }

// unhurried is spec with an AckWait that exceeds all test timeouts: a redelivered message was returned.
func unhurried() event.ConsumerSpec {
	s := spec()
	s.AckWait = 10 * time.Minute
	return s
}

// consume runs Consume until the test ends and returns a channel with the received ids.
func consume(t testing.TB, b *bus.Bus, cfg bus.ConsumeConfig) <-chan string {
	t.Helper()
	got := make(chan string, 10_000)
	start(t, b, cfg, func(_ context.Context, batch []*bus.Delivery) {
		for _, d := range batch {
			got <- d.Event.ID()
			if err := d.Ack(); err != nil {
				t.Errorf("ack: %v", err)
			}
		}
	})
	return got
}

// start runs Consume until the returned function is called, or the test ends.
func start(t testing.TB, b *bus.Bus, cfg bus.ConsumeConfig, handle func(context.Context, []*bus.Delivery)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Consume(ctx, cfg, handle) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := within(t, done, "consume ends"); err != nil {
			t.Errorf("consume: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// within receives a value with a generous timeout.
func within[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("timeout after a minute: %s", what)
		panic("unreachable")
	}
}
