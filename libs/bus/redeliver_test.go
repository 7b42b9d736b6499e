package bus_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
)

func TestRedeliver_ReceiverEnded_NextGetsItsMessages(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	require.NoError(t, b.EnsureConsumer(t.Context(), unhurried()))
	c, err := b.JetStream().Consumer(t.Context(), string(event.StreamCommands), unhurried().Name)
	require.NoError(t, err)
	publish(t, b, "one", "done", "two")
	received, err := c.Fetch(3)
	require.NoError(t, err)
	for m := range received.Messages() {
		if e, err := bus.Decode(m.Headers(), m.Data()); err != nil || e.ID() == "done" {
			require.NoError(t, err)
			require.NoError(t, m.DoubleAck(t.Context()))
		}
	}
	require.NoError(t, received.Error())
	n, err := b.Redeliver(t.Context(), unhurried())
	if err != nil || n != 2 {
		t.Fatalf("%d messages, error %v; want the two that are not acknowledged", n, err)
	}
	deliveries := make(chan *bus.Delivery, 10)
	start(t, b, bus.ConsumeConfig{Consumer: unhurried()}, func(_ context.Context, batch []*bus.Delivery) {
		for _, d := range batch {
			deliveries <- d
		}
	})
	publish(t, b, "new")
	for _, want := range []struct {
		id        string
		delivered uint64
	}{{"one", 2}, {"two", 2}, {"new", 1}} {
		d := within(t, deliveries, "message "+want.id)
		if d.Event.ID() != want.id || d.NumDelivered() != want.delivered {
			t.Errorf("message %s, delivered %d times; want %s, %d times", d.Event.ID(), d.NumDelivered(), want.id, want.delivered)
		}
	}
}

func TestRedeliver_NothingReceived_IsZero(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	require.NoError(t, b.EnsureConsumer(t.Context(), unhurried()))
	publish(t, b, "one")
	if n, err := b.Redeliver(t.Context(), unhurried()); err != nil || n != 0 {
		t.Errorf("%d messages, error %v; want none", n, err)
	}
}

func TestRedeliver_NoConsumer_Fails(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	if n, err := b.Redeliver(t.Context(), unhurried()); err == nil || n != 0 {
		t.Errorf("%d messages, error %v; want an error", n, err)
	}
}
