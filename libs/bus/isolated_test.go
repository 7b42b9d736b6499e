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
