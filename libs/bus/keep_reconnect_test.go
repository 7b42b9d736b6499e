package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// The server may have lost data during a restart while Keep still works on its previous findings.
func TestKeep_ReconnectDuringCheck_ChecksAgain(t *testing.T) {
	t.Parallel()
	keeper := testkit.Bus(t, testkit.NATS(t).URL())
	rounds := make(chan int, 100)
	n := 0
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- keeper.Keep(ctx, func() []event.ConsumerSpec {
			n++
			if n == 1 {
				if err := keeper.NATS().ForceReconnect(); err != nil {
					t.Error(err)
				}
				for keeper.NATS().Stats().Reconnects == 0 && ctx.Err() == nil {
					_ = keeper.NATS().FlushTimeout(10 * time.Millisecond) // fails without a connection
				}
			}
			rounds <- n
			return nil
		})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	// Without the signal, the second round would start after 30 seconds.
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for round := range 2 {
		select {
		case <-rounds:
		case <-limit.C:
			t.Fatalf("only %d rounds", round)
		}
	}
}
