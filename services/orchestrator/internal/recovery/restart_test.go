package recovery_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// What a start goes by: a server that was restarted knows the ids of what it holds, and no others, and its stage memory is new.
func TestRestart_AnsweredMessages_LoseTheirIDs(t *testing.T) {
	n := testkit.NATS(t)
	b := testkit.Bus(t, n.URL())
	dropped := func(b *bus.Bus, id string) bool {
		t.Helper()
		ack, err := b.JetStream().Publish(t.Context(), event.CommandSubject("alpha", "One"), nil, jetstream.WithMsgID(id))
		require.NoError(t, err)
		return ack.Duplicate
	}
	made := func(b *bus.Bus, name event.Stream) time.Time {
		t.Helper()
		at, err := b.Created(t.Context(), name)
		require.NoError(t, err)
		return at
	}
	spec := event.CommandsConsumer("alpha")
	require.NoError(t, b.EnsureConsumer(t.Context(), spec))
	consumer, err := b.JetStream().Consumer(t.Context(), string(spec.Stream), spec.Name)
	require.NoError(t, err)
	dropped(b, "answered")
	answered, err := consumer.Next()
	require.NoError(t, err)
	require.NoError(t, answered.DoubleAck(t.Context()))
	dropped(b, "held")
	for _, id := range []string{"answered", "held"} {
		if !dropped(b, id) {
			t.Errorf("a second %q is taken before the restart", id)
		}
	}
	commands, stages := made(b, event.StreamCommands), made(b, memory)

	n.Restart(t)
	b = testkit.Bus(t, n.URL())
	if now := made(b, event.StreamCommands); !now.Equal(commands) {
		t.Errorf("the stream of commands was made at %s, and again at %s", commands, now)
	}
	if now := made(b, memory); !now.After(stages) {
		t.Errorf("the stage memory of %s is still there after the restart", now)
	}
	if dropped(b, "answered") || !dropped(b, "held") {
		t.Error("the server knows other ids after its restart than those of what it holds")
	}
}
