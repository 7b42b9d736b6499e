package recovery_test

import (
	"context"
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

// The stage memory of a cluster survives a restart of all servers without its messages, which are numbered from 1 again.
func TestRestart_AllServersOfCluster_NumberTheMemoryAgain(t *testing.T) {
	t.Parallel()
	servers := testkit.NATSCluster(t, 3)
	b := testkit.Connect(t, servers[0].URL())
	testkit.Eventually(t, time.Minute, "the streams", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // the first requests may come before there is a leader
		defer cancel()
		return b.EnsureStreams(ctx) == nil
	})
	stages := func() (found bus.StreamRange) {
		t.Helper()
		testkit.Eventually(t, time.Minute, "the stage memory has a leader", func() bool {
			var err error
			found, err = b.Range(t.Context(), memory)
			return err == nil
		})
		return found
	}
	js := b.JetStream()
	for i := range 5 {
		testkit.Eventually(t, time.Minute, "a value is stored", func() bool {
			_, err := js.Publish(t.Context(), "$KV."+event.StageBucket+".op.s.1.k", nil, jetstream.WithMsgID(string(rune('a'+i))))
			return err == nil
		})
	}
	before := stages()
	for _, n := range servers {
		n.Shutdown()
	}
	for _, n := range servers {
		n.Restart(t)
	}
	after := stages()
	if before.Last != 5 || after.Last != 0 || !after.Created.Equal(before.Created) {
		t.Errorf("the stage memory was %+v and is %+v, want the same time of creation, and its numbers from 1 again", before, after)
	}
}
