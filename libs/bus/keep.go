package bus

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
)

// keepEvery is the interval of the checks by Keep without a signal.
const keepEvery = 30 * time.Second

// Keep creates the streams, the stage bucket and the consumers, and creates them again if they vanish. It checks after a reconnect, after
// a deletion that the server reports, and every 30 seconds. Guests rely on it. Keep calls consumers before each check. It blocks until
// ctx ends, and then returns nil.
func (b *Bus) Keep(ctx context.Context, consumers func() []event.ConsumerSpec) error {
	deleted := make(chan struct{}, 1)
	const ofConsumers = "$JS.EVENT.ADVISORY.CONSUMER.DELETED."
	for _, subject := range []string{"$JS.EVENT.ADVISORY.STREAM.DELETED.*", ofConsumers + "*.*"} {
		sub, err := b.nc.Subscribe(subject, func(m *nats.Msg) {
			if strings.HasPrefix(m.Subject, ofConsumers+string(event.StreamDead)+".") {
				return // a page of dead letters was read
			}
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
	reconnected := b.reconnects.next()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-reconnected:
		case <-deleted:
		}
		// Take the signal before the check, so that later events cause another check.
		reconnected = b.reconnects.next()
		err := untilReconnected(ctx, reconnected, func(ctx context.Context) error { return b.EnsureAll(ctx, consumers()) })
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && isClosed(reconnected):
			timer.Reset(0) // the request was lost with the old connection: retry immediately
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

// untilReconnected calls f with a context that ends when the connection is replaced, because answers on the old one are lost.
func untilReconnected(ctx context.Context, reconnected <-chan struct{}, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		select {
		case <-reconnected:
			cancel()
		case <-ctx.Done():
		}
	})
	return f(ctx)
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// EnsureAll creates missing streams, consumers and the stage bucket, and updates existing ones to the contract. It continues after an
// error, and returns the first.
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
