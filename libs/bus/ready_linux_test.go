package bus_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestReady_DiskWasFull_FailsUntilServerRestarts(t *testing.T) {
	t.Parallel()
	b, s := setup(t)
	guest := connect(t, s, bus.Config{Guest: true, Timeout: 2 * time.Second}, bus.Deps{})
	publish(t, b, "before")
	ready := func(b *bus.Bus) bool { return b.Ready(t.Context()) == nil }
	if !ready(b) || !ready(guest) {
		t.Fatalf("not ready: %v, %v", b.Ready(t.Context()), guest.Ready(t.Context()))
	}
	s.FillDisk(t)
	testkit.Eventually(t, time.Minute, "the full disk is noticed", func() bool { return !ready(b) })
	if err := guest.Publish(t.Context(), command(t, "lost")); err == nil || ready(guest) {
		t.Errorf("publishing returns %v, ready %v: want both to fail", err, guest.Ready(t.Context()))
	}
	s.EmptyDisk(t)
	if err := guest.Publish(t.Context(), command(t, "still lost")); err == nil {
		t.Fatal("the server stores again: the test has no effect")
	}
	testkit.Eventually(t, time.Minute, "the probe is asked again", func() bool { return b.Ready(t.Context()) != nil })
	if ready(guest) {
		t.Error("the guest is ready")
	}
	s.Restart(t)
	testkit.Eventually(t, time.Minute, "it is ready after the restart", func() bool { return ready(b) && ready(guest) })
	publish(t, b, "after")
}

// A probe expires.
func TestReady_Probe_Expires(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	require.NoError(t, b.Ready(t.Context()))
	testkit.Eventually(t, time.Minute, "the stream is empty", func() bool { return streamMessages(t, b, event.StreamCommands) == 0 })
}
