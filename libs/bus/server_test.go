package bus_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// natsServer is a real server on a loopback port that stays the same after restarts.
type natsServer struct {
	*server.Server
	port           int
	dir            string
	user, password string
	// maxStore and maxMemory limit the streams; 0 means the server's default.
	maxStore, maxMemory int64
}

func startServer(t testing.TB) *natsServer {
	t.Helper()
	s := &natsServer{port: testkit.Port(t), dir: t.TempDir()}
	s.start(t)
	t.Cleanup(s.stop)
	return s
}

func (s *natsServer) start(t testing.TB) {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: s.port, JetStream: true, StoreDir: s.dir, NoSigs: true, NoLog: true,
		Username: s.user, Password: s.password, JetStreamMaxStore: s.maxStore, JetStreamMaxMemory: s.maxMemory,
	})
	require.NoError(t, err, "make nats server")
	srv.Start()
	if !srv.ReadyForConnections(time.Minute) {
		t.Fatal("nats server does not come up")
	}
	s.Server = srv
}

func (s *natsServer) stop() {
	s.Shutdown()
	s.WaitForShutdown()
}

// restart restarts the server; emptied makes it lose its store.
func (s *natsServer) restart(t testing.TB, emptied bool) {
	t.Helper()
	s.stop()
	if emptied {
		require.NoError(t, os.RemoveAll(s.dir), "empty the store")
	}
	s.start(t)
}

// setup returns a bus with all streams, and its server.
func setup(t testing.TB) (*bus.Bus, *natsServer) {
	t.Helper()
	s := startServer(t)
	b := connect(t, s, bus.Config{}, bus.Deps{})
	require.NoError(t, b.EnsureStreams(t.Context()))
	return b, s
}

func connect(t testing.TB, s *natsServer, cfg bus.Config, deps bus.Deps) *bus.Bus {
	t.Helper()
	cfg.URL = s.ClientURL()
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
