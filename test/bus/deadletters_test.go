package bus

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
)

// The orchestrator has the rights to list, redrive and drop, and leaves no consumer behind. A worker has none of them.
func TestBus_DeadLetters_AreForTheOrchestrator(t *testing.T) { //nolint:paralleltest // the server reads its passwords from the environment
	in := install(t, slog.New(slog.DiscardHandler))
	b := in.Connect(event.UserOrchestrator)
	require.NoError(t, b.EnsureStreams(t.Context()))
	subject := event.ResultSubject("edp", "S")
	for range 2 {
		_, err := b.JetStream().PublishMsg(t.Context(), &nats.Msg{
			Subject: event.DeadSubject(event.StreamResults), Data: []byte("x"), Header: nats.Header{bus.HeaderDeadSubject: {subject}},
		})
		require.NoError(t, err)
	}
	page, err := b.DeadLetters(t.Context(), 0, 10)
	require.NoError(t, err)
	if len(page.Letters) != 2 || page.Next != 0 || page.Letters[0].Subject != subject {
		t.Fatalf("listed: %+v", page)
	}
	letter, err := b.DeadLetter(t.Context(), page.Letters[0].Seq)
	require.NoError(t, err)
	require.NoError(t, b.Redrive(t.Context(), letter))
	require.NoError(t, b.DropDeadLetter(t.Context(), page.Letters[1].Seq))
	results, err := b.JetStream().Stream(t.Context(), string(event.StreamResults))
	require.NoError(t, err)
	if n := results.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d results are published again, want 1", n)
	}
	dead, err := b.JetStream().Stream(t.Context(), string(event.StreamDead))
	require.NoError(t, err)
	if state := dead.CachedInfo().State; state.Msgs != 0 || state.Consumers != 0 {
		t.Errorf("%d dead letters and %d consumers are left", state.Msgs, state.Consumers)
	}
	if _, err := in.Connect(event.WorkerUserName("edp")).DeadLetters(t.Context(), 0, 10); err == nil {
		t.Error("a worker lists dead letters")
	}
}
