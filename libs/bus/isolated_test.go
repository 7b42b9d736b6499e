package bus_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/testkit"
)

// A server that is cut off from its cluster keeps its clients. They must not wait for the end of the partition.
func TestConsume_ServerIsIsolated_MovesToAnotherServer(t *testing.T) {
	t.Parallel()
	other := testkit.NATS(t)
	other.Shutdown()
	cluster := testkit.NATSCluster(t, 3)
	isolated := cluster[0]
	for _, s := range cluster[1:] {
		s.Shutdown()
	}
	b, err := bus.Connect(t.Context(), bus.Config{URL: isolated.URL() + "," + other.URL()}, bus.Deps{})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	require.Equal(t, isolated.URL(), b.NATS().ConnectedUrl())
	other.Restart(t)
	got := consume(t, b, bus.ConsumeConfig{Consumer: spec()})
	testkit.Eventually(t, time.Minute, "a connection to the other server", func() bool { return b.NATS().ConnectedUrl() == other.URL() })
	require.NoError(t, b.Publish(t.Context(), command(t, "1")))
	require.Equal(t, "1", within(t, got, "the command"))
}

func TestIsolation_RequestSucceeds_StartsAgain(t *testing.T) {
	t.Parallel()
	var i bus.Isolation
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for _, c := range []struct {
		asked, now int
		worked     bool // before
		leaves     bool
	}{
		{asked: 0, now: 2},
		{asked: 3, now: 4},
		{asked: 4, now: 7, worked: true},
		{asked: 7, now: 9, leaves: true}, // the request of 4 was the first
		{asked: 9, now: 10},
	} {
		if c.worked {
			i.Works()
		}
		if got := i.Fails(at(c.asked), at(c.now)); got != c.leaves {
			t.Errorf("the request of %d s that failed after %d s: leaves %t, want %t", c.asked, c.now, got, c.leaves)
		}
	}
}
