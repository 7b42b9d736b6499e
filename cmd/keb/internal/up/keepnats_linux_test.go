package up

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestNATS_DiskHasRoomAgain_IsRestartedAndWrites(t *testing.T) {
	testkit.FullDisk(t, func(t *testing.T, fill func(size int64), empty func()) {
		n, err := newNATS(t.TempDir(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		defer func() { n.stop() }()
		url := n.ClientURL()
		inside, err := bus.Connect(t.Context(), bus.Config{URL: url}, bus.Deps{InProcess: n})
		require.NoError(t, err)
		defer inside.Close()
		outside, err := bus.Connect(t.Context(), bus.Config{URL: url}, bus.Deps{})
		require.NoError(t, err)
		defer outside.Close()
		require.NoError(t, inside.EnsureStreams(t.Context()))
		store := func(b *bus.Bus) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := b.JetStream().Publish(ctx, event.DeadSubject(event.StreamCommands), []byte(strings.Repeat("x", 1000)), jetstream.WithRetryAttempts(0))
			return err == nil
		}
		if !store(inside) || !store(outside) {
			t.Fatal("the first message is not stored")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.watchEvery(ctx, 100*time.Millisecond) }()
		defer func() { cancel(); <-ended }()
		fill(1)
		testkit.Eventually(t, time.Minute, "the disk is full", func() bool { return !store(inside) })
		first := n.current.Load()
		testkit.Eventually(t, time.Minute, "the server reports the error", func() bool { return writeError(first) != "" })
		if n.current.Load() != first {
			t.Error("the server is restarted although the disk is full")
		}
		empty()
		testkit.Eventually(t, time.Minute, "both connections store again", func() bool { return store(inside) && store(outside) })
		if n.current.Load() == first || n.ClientURL() != url {
			t.Errorf("the server is at %s, want another one at %s", n.ClientURL(), url)
		}
	})
}
