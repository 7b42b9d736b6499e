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

// Recovery relies on this behavior of NATS: a restarted server knows only the ids of the messages that it holds, and its stage memory is
// new.
func TestRestart_AnsweredMessages_LoseTheirIDs(t *testing.T) {
	n := testkit.NATS(t)
	b := testkit.Bus(t, n.URL())
	dropped := func(b *bus.Bus, id string) bool {
		t.Helper()
		ack, err := b.JetStream().Publish(t.Context(), event.CommandSubject("alpha", "One"), nil, jetstream.WithMsgID(id))
		require.NoError(t, err)
		return ack.Duplicate
	}
	created := func(b *bus.Bus, name event.Stream) time.Time {
		t.Helper()
		stream, err := b.Range(t.Context(), name)
		require.NoError(t, err)
		return stream.Created
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
			t.Errorf("a second message %q is not dropped before the restart", id)
		}
	}
	commands, stages := created(b, event.StreamCommands), created(b, memory)

	n.Restart(t)
	b = testkit.Bus(t, n.URL())
	if got := created(b, event.StreamCommands); !got.Equal(commands) {
		t.Errorf("the stream of commands was created at %s, want %s as before the restart", got, commands)
	}
	if got := created(b, memory); !got.After(stages) {
		t.Errorf("the stage memory was created at %s, want a new one after the restart", got)
	}
	if dropped(b, "answered") || !dropped(b, "held") {
		t.Error("after its restart the server does not know exactly the ids of the messages that it holds")
	}
}
