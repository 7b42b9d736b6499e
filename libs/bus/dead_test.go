package bus_test

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// garbage publishes a message of the maximum size that is not an event.
func garbage(t testing.TB, b *bus.Bus, header nats.Header) *nats.Msg {
	t.Helper()
	m := &nats.Msg{Subject: event.CommandSubject("avs", "AVS_Tags"), Header: header}
	room := event.MaxPayload - (m.Size() - len(m.Subject))
	m = &nats.Msg{Subject: m.Subject, Header: header, Data: []byte(strings.Repeat("x", room))}
	_, err := b.JetStream().PublishMsg(t.Context(), m)
	require.NoError(t, err)
	return m
}

func TestDeadLetter_MessageOfMaxSize_IsTruncated(t *testing.T) {
	t.Parallel()
	long := make(nats.Header)
	for i := range 63 {
		long.Set("Note-"+strconv.Itoa(i), strings.Repeat("n", 1020))
	}
	for name, header := range map[string]nats.Header{
		"without headers": nil,
		"with some":       {"Hint": {"x"}},
		"with many":       long,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := setup(t)
			got := consume(t, b, bus.ConsumeConfig{Consumer: spec()})
			m := garbage(t, b, header)
			publish(t, b, "readable")
			want(t, got, "readable")

			letter := deadLetter(t, b, event.StreamCommands)
			size, err := strconv.Atoi(letter.Header.Get(bus.HeaderDeadSize))
			if err != nil || size <= event.MaxPayload {
				t.Errorf("the original size is said to be %d, error %v", size, err)
			}
			if !bytes.HasPrefix(m.Data, letter.Data) || len(letter.Data) < len(m.Data)-70_000 {
				t.Errorf("the dead letter has %d bytes, want most of the %d", len(letter.Data), len(m.Data))
			}
			if len(header) == 1 && letter.Header.Get("Hint") != "x" {
				t.Error("the headers of the message are gone")
			}
			if letter.Header.Get(bus.HeaderDeadReason) == "" || letter.Header.Get(bus.HeaderDeadSubject) != m.Subject {
				t.Errorf("dead letter has headers %v, want reason and subject", letter.Header)
			}
			if n := streamMessages(t, b, event.StreamCommands); n != 0 {
				t.Errorf("%d messages are left in the stream", n)
			}
		})
	}
}

func TestDeadLetter_StreamRejectsIt_MessageIsDropped(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	var log strings.Builder
	b := connect(t, s, bus.Config{}, bus.Deps{Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, b.EnsureStreams(t.Context()))
	dead, err := b.JetStream().Stream(t.Context(), string(event.StreamDead))
	require.NoError(t, err)
	cfg := dead.CachedInfo().Config
	cfg.MaxMsgSize = 10_000
	_, err = b.JetStream().UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	got := make(chan string, 10)
	terminated, err := b.NATS().SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
	require.NoError(t, err)
	stop := start(t, b, bus.ConsumeConfig{Consumer: spec()}, func(_ context.Context, batch []*bus.Delivery) {
		for _, d := range batch {
			got <- d.Event.ID()
			_ = d.Ack()
		}
	})
	garbage(t, b, nil)
	publish(t, b, "readable")
	want(t, got, "readable")
	_, err = terminated.NextMsg(time.Minute)
	require.NoError(t, err, "the message is not given up")
	stop()
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors are logged, want one:\n%s", n, log.String())
	}
}
