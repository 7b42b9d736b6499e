package bus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/testkit"
)

// keep runs Keep for the commands of worker avs until the test ends.
func keep(t *testing.T, url string) {
	t.Helper()
	keeper := testkit.Bus(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- keeper.Keep(ctx, func() []event.ConsumerSpec { return []event.ConsumerSpec{spec()} })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("keep: %v", err)
		}
	})
}

func guest(t *testing.T, url string) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Config{URL: url, Guest: true}, bus.Deps{Log: testkit.Logger(t)})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func TestGuest_StreamVanishes_Continues(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	keep(t, server.URL())
	g := guest(t, server.URL())
	got := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- g.Consume(ctx, bus.ConsumeConfig{Consumer: spec()}, func(_ context.Context, batch []*bus.Delivery) {
			for _, d := range batch {
				got <- d.Event.ID()
				if err := d.Ack(); err != nil {
					t.Error(err)
				}
			}
		})
	}()
	js := testkit.Bus(t, server.URL()).JetStream()
	round := func(id string) {
		t.Helper()
		testkit.Eventually(t, time.Minute, id+" is published", func() bool {
			return g.Publish(t.Context(), command(t, id)) == nil
		})
		testkit.Eventually(t, time.Minute, id+" is consumed", func() bool {
			select {
			case consumed := <-got:
				return consumed == id
			default:
				return false
			}
		})
		testkit.Eventually(t, time.Minute, "the bucket is there after "+id, func() bool {
			_, err := js.KeyValue(t.Context(), event.StageBucket)
			return err == nil
		})
	}
	round("first")
	require.NoError(t, js.DeleteConsumer(t.Context(), string(event.StreamCommands), "avs"))
	round("without-consumer")
	require.NoError(t, js.DeleteStream(t.Context(), string(event.StreamCommands)))
	round("without-stream")
	require.NoError(t, js.DeleteKeyValue(t.Context(), event.StageBucket))
	round("without-bucket")
	server.Restart(t)
	round("after-restart")
	server.RestartEmpty(t)
	round("after-loss")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestGuest_MissingStream_IsNotCreated(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	g := guest(t, server.URL())
	if err := g.EnsureStreams(t.Context()); err == nil {
		t.Error("a guest makes streams")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := g.EnsureConsumer(ctx, spec()); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("consumer without a stream: error is %v", err)
	}
	if err := g.Publish(t.Context(), command(t, "1")); err == nil {
		t.Error("a message without a stream is published")
	}
	waiting, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	m := stagemem.NewGuest(g.JetStream(), nil)
	if err := m.Check(waiting, stagemem.Scope{OperationID: "o", Stage: "s", StageAttempt: 1}); err == nil || errors.Is(err, stagemem.ErrLost) {
		t.Errorf("memory without a bucket: error is %v", err)
	}
	names := g.JetStream().StreamNames(t.Context())
	for name := range names.Name() {
		t.Errorf("stream %s was made", name)
	}
	if err := names.Err(); err != nil {
		t.Error(err)
	}
}

// Each page of dead letters creates and deletes consumers.
func TestKeep_DeadLettersAreRead_ChecksNothing(t *testing.T) {
	t.Parallel()
	url := testkit.NATS(t).URL()
	keeper := testkit.Bus(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	rounds, done := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		done <- keeper.Keep(ctx, func() []event.ConsumerSpec {
			rounds <- struct{}{}
			return []event.ConsumerSpec{spec()}
		})
	}()
	within(t, rounds, "the first check")
	js := keeper.JetStream()
	dead := string(event.StreamDead)
	testkit.Eventually(t, time.Minute, "the end of the first check", func() bool {
		_, err := js.Consumer(t.Context(), string(spec().Stream), spec().Name)
		return err == nil
	})
	for range 3 {
		c, err := js.CreateConsumer(t.Context(), dead, jetstream.ConsumerConfig{MemoryStorage: true, AckPolicy: jetstream.AckNonePolicy})
		require.NoError(t, err)
		require.NoError(t, js.DeleteConsumer(t.Context(), dead, c.CachedInfo().Name))
	}
	// The signal of this deletion comes after theirs.
	require.NoError(t, js.DeleteConsumer(t.Context(), string(spec().Stream), spec().Name))
	testkit.Eventually(t, time.Minute, "the consumer", func() bool {
		_, err := js.Consumer(t.Context(), string(spec().Stream), spec().Name)
		return err == nil
	})
	cancel()
	require.NoError(t, within(t, done, "the end of Keep"))
	if n := len(rounds); n != 1 {
		t.Errorf("%d checks after the first one, want one", n)
	}
}
