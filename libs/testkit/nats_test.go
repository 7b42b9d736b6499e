package testkit

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

func messages(t *testing.T, js jetstream.JetStream, stream string) (uint64, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.Msgs, nil
}

func TestNATS_RestartEmpty_LosesStreams(t *testing.T) {
	t.Parallel()
	n := NATS(t)
	js := Bus(t, n.URL()).JetStream()
	_, err := js.Publish(t.Context(), event.FactSubject(event.Provision, event.TypeStepFinished), []byte("{}"))
	require.NoError(t, err)
	url := n.URL()
	n.Restart(t)
	if n.URL() != url {
		t.Errorf("the address was %s and is %s", url, n.URL())
	}
	Eventually(t, time.Minute, "the message is there again", func() bool {
		got, err := messages(t, js, string(event.StreamFacts))
		return err == nil && got == 1
	})
	if _, err := os.Stat(n.StoreDir()); err != nil {
		t.Errorf("the store is not at StoreDir: %v", err)
	}

	n.RestartEmpty(t)
	Eventually(t, time.Minute, "the server answers that there is no such stream", func() bool {
		_, err := messages(t, js, string(event.StreamFacts))
		return errors.Is(err, jetstream.ErrStreamNotFound)
	})
}

func TestNATS_TwoServers_AreIndependent(t *testing.T) {
	t.Parallel()
	if a, b := NATS(t).URL(), NATS(t).URL(); a == b {
		t.Errorf("two servers at %s", a)
	}
}
