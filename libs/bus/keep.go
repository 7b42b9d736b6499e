package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
)

// keepEvery is how often Keep looks although nothing has told it to.
const keepEvery = 30 * time.Second

// Keep makes the streams, the stage bucket and these consumers, and makes them again when they vanish: after a reconnect, when the
// server says that one was deleted, and every half a minute. It is what guests rely on. consumers is asked anew each time. Keep
// blocks until ctx ends, and then returns nil.
func (b *Bus) Keep(ctx context.Context, consumers func() []event.ConsumerSpec) error {
	deleted := make(chan struct{}, 1)
	for _, subject := range []string{"$JS.EVENT.ADVISORY.STREAM.DELETED.*", "$JS.EVENT.ADVISORY.CONSUMER.DELETED.*.*"} {
		sub, err := b.nc.Subscribe(subject, func(*nats.Msg) {
			select {
			case deleted <- struct{}{}:
			default:
			}
		})
		if err != nil {
			return fmt.Errorf("listen for what is deleted: %w", err)
		}
		defer sub.Unsubscribe() //nolint:errcheck // the connection is closing if this fails
	}
	wait := firstEnsureWait
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		reconnected := b.reconnects.next()
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-reconnected:
		case <-deleted:
		}
		err := b.EnsureAll(ctx, consumers())
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			b.log.Warn("streams and consumers are not complete", "err", err)
			timer.Reset(wait)
			wait = min(2*wait, maxEnsureWait)
		default:
			wait = firstEnsureWait
			timer.Reset(keepEvery)
		}
	}
}

// EnsureAll makes the streams, the stage bucket and these consumers where they are missing, and brings them in line with the
// contract. It goes on after a failure, and returns the first.
func (b *Bus) EnsureAll(ctx context.Context, consumers []event.ConsumerSpec) error {
	first := b.EnsureStreams(ctx)
	for _, spec := range consumers {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := b.EnsureConsumer(ctx, spec); err != nil && first == nil {
			first = err
		}
	}
	return first
}
