package bus_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func publish(t testing.TB, b *bus.Bus, ids ...string) {
	t.Helper()
	msgs := make([]bus.Message, len(ids))
	for i, id := range ids {
		msgs[i] = command(t, id)
	}
	require.NoError(t, b.Publish(t.Context(), msgs...))
}

func want(t testing.TB, got <-chan string, id string) {
	t.Helper()
	for {
		// Messages that were delivered before a restart may be redelivered.
		if v := within(t, got, "event "+id); v == id {
			return
		}
	}
}

func TestConsume_Messages_ArriveOnce(t *testing.T) {
	t.Parallel()
	b := connect(t, testkit.NATS(t), bus.Config{Timeout: time.Minute}, bus.Deps{})
	require.NoError(t, b.EnsureStreams(t.Context()))
	got := consume(t, b, bus.ConsumeConfig{Consumer: unhurried(), MaxBatch: 50, Handlers: 2})
	const n = 5000
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("op/%d/1", i)
	}
	publish(t, b, ids...)
	seen := make(map[string]bool, n)
	for range n {
		id := within(t, got, "next event")
		if seen[id] {
			t.Fatalf("event %s came twice", id)
		}
		seen[id] = true
	}
}

func TestConsume_ArrivedMessages_FormOneBatch(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	sizes := make(chan int, 100)
	release := make(chan struct{})
	start(t, b, bus.ConsumeConfig{Consumer: spec(), MaxBatch: 10, Prefetch: 100}, func(_ context.Context, batch []*bus.Delivery) {
		sizes <- len(batch)
		<-release
		for _, d := range batch {
			_ = d.Ack()
		}
	})
	publish(t, b, "alone")
	if got := within(t, sizes, "a lone message"); got != 1 {
		t.Errorf("first batch has %d messages, want 1", got)
	}
	ids := make([]string, 25)
	for i := range ids {
		ids[i] = fmt.Sprintf("op/%d/1", i)
	}
	publish(t, b, ids...)
	close(release)
	total, largest := 0, 0
	for total < 25 {
		n := within(t, sizes, "next batch")
		total, largest = total+n, max(largest, n)
	}
	if largest < 2 || largest > 10 {
		t.Errorf("largest batch has %d messages, want 2 to 10", largest)
	}
}

func TestConsume_ConsumerIsDeleted_Continues(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	got := consume(t, b, bus.ConsumeConfig{Consumer: spec()})
	publish(t, b, "before")
	want(t, got, "before")
	require.NoError(t, b.JetStream().DeleteConsumer(t.Context(), string(event.StreamCommands), "avs"))
	publish(t, b, "after")
	want(t, got, "after")
}

func TestConsume_StreamIsDeleted_Continues(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	got := consume(t, b, bus.ConsumeConfig{Consumer: spec()})
	publish(t, b, "before")
	want(t, got, "before")
	require.NoError(t, b.JetStream().DeleteStream(t.Context(), string(event.StreamCommands)))
	publish(t, b, "after")
	want(t, got, "after")
}

func TestConsume_ServerRestarts_Continues(t *testing.T) {
	t.Parallel()
	for emptied, restart := range map[bool]func(*testkit.NATSServer, testing.TB){false: (*testkit.NATSServer).Restart, true: (*testkit.NATSServer).RestartEmpty} {
		t.Run(fmt.Sprintf("store emptied %t", emptied), func(t *testing.T) {
			t.Parallel()
			b, s, reg := measured(t)
			got := consume(t, b, bus.ConsumeConfig{Consumer: spec()})
			publish(t, b, "before")
			want(t, got, "before")
			restart(s, t)
			publish(t, b, "after")
			want(t, got, "after")
			// A closed subscription leaves its pull request behind, to which the server may send lost messages.
			if setUpAgain := gathered(t, reg, "keb_bus_recoveries_total"); setUpAgain > 0 && !emptied {
				t.Errorf("set up %v times again: the consumer was the same", setUpAgain)
			}
		})
	}
}

func TestConsume_Reconnect_KeepsSubscription(t *testing.T) {
	t.Parallel()
	b, _, reg := measured(t)
	got := consume(t, b, bus.ConsumeConfig{Consumer: unhurried()})
	publish(t, b, "0")
	want(t, got, "0")
	for round := range 5 {
		before := b.NATS().Stats().Reconnects
		require.NoError(t, b.NATS().ForceReconnect())
		for b.NATS().Stats().Reconnects == before && t.Context().Err() == nil {
			_ = b.NATS().FlushTimeout(10 * time.Millisecond) // fails without a connection
		}
		id := strconv.Itoa(round + 1)
		publish(t, b, id)
		want(t, got, id)
	}
	if setUpAgain, again := gathered(t, reg, "keb_bus_recoveries_total"), gathered(t, reg, "keb_bus_redelivered_total"); setUpAgain+again > 0 {
		t.Errorf("set up %v times again, and %v messages came again", setUpAgain, again)
	}
}

// measured is setup with the metrics of the bus.
func measured(t testing.TB) (*bus.Bus, *testkit.NATSServer, *prometheus.Registry) {
	t.Helper()
	s, reg := testkit.NATS(t), prometheus.NewRegistry()
	b := connect(t, s, bus.Config{}, bus.Deps{Registerer: reg})
	require.NoError(t, b.EnsureStreams(t.Context()))
	return b, s, reg
}

// gathered returns the sum of a counter over its labels.
func gathered(t testing.TB, g prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

// After a power loss, a stream may contain less than its consumer has acknowledged.
func TestConsume_StreamBehindConsumer_Continues(t *testing.T) {
	t.Parallel()
	b, s := setup(t)
	got := consume(t, b, bus.ConsumeConfig{Consumer: spec()})
	stored := filepath.Join(s.StoreDir(), "$G", "streams", string(event.StreamCommands), "msgs")
	old := filepath.Join(t.TempDir(), "msgs")
	s.Shutdown()
	require.NoError(t, os.CopyFS(old, os.DirFS(stored)))
	s.Restart(t)
	publish(t, b, "1", "2", "3", "4", "5")
	want(t, got, "5")
	require.NoError(t, b.NATS().Flush())
	s.Shutdown()
	require.NoError(t, os.RemoveAll(stored))
	require.NoError(t, os.CopyFS(stored, os.DirFS(old)))
	s.Restart(t)
	publish(t, b, "after")
	want(t, got, "after")
}

func TestConsume_UnreadableMessage_GoesToDeadLetters(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	got := consume(t, b, bus.ConsumeConfig{Consumer: spec()})
	m := &nats.Msg{Subject: event.CommandSubject("avs", "AVS_Tags"), Data: []byte("garbage"), Header: nats.Header{"Hint": {"x"}}}
	_, err := b.JetStream().PublishMsg(t.Context(), m)
	require.NoError(t, err)
	publish(t, b, "readable")
	want(t, got, "readable")

	letter := deadLetter(t, b, event.StreamCommands)
	if string(letter.Data) != "garbage" || letter.Header.Get("Hint") != "x" {
		t.Errorf("dead letter is %q with headers %v, want the message itself", letter.Data, letter.Header)
	}
	if letter.Header.Get(bus.HeaderDeadReason) == "" || letter.Header.Get(bus.HeaderDeadSubject) != m.Subject ||
		letter.Header.Get(bus.HeaderDeadConsumer) != "avs" {
		t.Errorf("dead letter has headers %v, want reason, subject and consumer", letter.Header)
	}
}

// deadLetter waits for the first dead letter of a stream and returns it.
func deadLetter(t testing.TB, b *bus.Bus, s event.Stream) *jetstream.RawStreamMsg {
	t.Helper()
	c, err := b.JetStream().CreateOrUpdateConsumer(t.Context(), string(event.StreamDead),
		jetstream.ConsumerConfig{FilterSubject: event.DeadSubject(s)})
	require.NoError(t, err)
	m, err := c.Next(jetstream.FetchMaxWait(time.Minute))
	require.NoError(t, err, "wait for dead letter")
	return &jetstream.RawStreamMsg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()}
}

func TestDead_Message_IsMovedOnce(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	done := make(chan error, 10)
	start(t, b, bus.ConsumeConfig{Consumer: spec()}, func(ctx context.Context, batch []*bus.Delivery) {
		for _, d := range batch {
			done <- d.Dead(ctx, "payload: cursor must be > 0, is \"-1\"\nsorry")
		}
	})
	publish(t, b, "a")
	require.NoError(t, within(t, done, "dead"))
	letter := deadLetter(t, b, event.StreamCommands)
	if got, want := letter.Header.Get(bus.HeaderDeadReason), "payload:%20cursor%20must%20be%20>%200,%20is%20%22-1%22%0Asorry"; got != want {
		t.Errorf("reason is %q, want %q", got, want)
	}
	if letter.Header.Get("ce-id") != "a" {
		t.Errorf("dead letter has headers %v, want those of the event", letter.Header)
	}
}

func TestNak_Message_IsRedelivered(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	count := make(chan uint64, 10)
	start(t, b, bus.ConsumeConfig{Consumer: unhurried()}, func(_ context.Context, batch []*bus.Delivery) {
		for _, d := range batch {
			count <- d.NumDelivered()
			if d.NumDelivered() == 1 {
				_ = d.Nak(10 * time.Millisecond)
				continue
			}
			_ = d.InProgress()
			_ = d.Ack()
		}
	})
	publish(t, b, "a")
	for n := uint64(1); n <= 2; n++ {
		if got := within(t, count, "delivery"); got != n {
			t.Errorf("the number of the delivery is %d, want %d", got, n)
		}
	}
}

func TestConsume_Stop_ReturnsUnhandledMessages(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	busy := make(chan struct{}, 10)
	first, cancel := context.WithCancel(t.Context())
	defer cancel()
	stop := start(t, b, bus.ConsumeConfig{Consumer: unhurried(), MaxBatch: 1, Prefetch: 20}, func(ctx context.Context, batch []*bus.Delivery) {
		busy <- struct{}{}
		select {
		case <-ctx.Done():
		case <-first.Done():
		}
		_ = batch[0].Ack()
	})
	ids := make([]string, 20)
	for i := range ids {
		ids[i] = fmt.Sprintf("op/%d/1", i)
	}
	publish(t, b, ids...)
	within(t, busy, "the first handler is busy")
	stop()
	got := consume(t, b, bus.ConsumeConfig{Consumer: unhurried()})
	for range 19 {
		within(t, got, "a message that was given back")
	}
}

func TestConsume_InvalidConfig_IsRejected(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	for _, cfg := range []bus.ConsumeConfig{
		{},
		{Consumer: spec(), MaxBatch: -1},
		{Consumer: spec(), Handlers: -1},
	} {
		if err := b.Consume(t.Context(), cfg, nil); err == nil {
			t.Errorf("consume with %+v succeeds, want an error", cfg)
		}
	}
}

// A subscription that fails at once must not be renewed in a busy loop.
func TestConsume_EveryPullIsRejected_Waits(t *testing.T) {
	t.Parallel()
	b := connect(t, testkit.NATS(t), bus.Config{}, bus.Deps{})
	require.NoError(t, b.EnsureStreams(t.Context()))
	s := spec()
	require.NoError(t, b.EnsureConsumer(t.Context(), s))
	info, err := b.JetStream().Consumer(t.Context(), string(s.Stream), s.Name)
	require.NoError(t, err)
	cfg := info.CachedInfo().Config
	cfg.MaxRequestBatch = 1
	_, err = b.JetStream().UpdateConsumer(t.Context(), string(s.Stream), cfg)
	require.NoError(t, err)
	pulls := make(chan struct{}, 10_000)
	sub, err := b.NATS().Subscribe("$JS.API.CONSUMER.MSG.NEXT.>", func(*nats.Msg) { pulls <- struct{}{} })
	require.NoError(t, err)
	defer sub.Unsubscribe()
	consume(t, b, bus.ConsumeConfig{Consumer: s})
	begun := time.Now()
	for range 8 {
		within(t, pulls, "a pull")
	}
	if took := time.Since(begun); took < time.Second {
		t.Errorf("8 subscriptions within %s", took)
	}
}
