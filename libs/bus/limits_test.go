package bus_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func config(t testing.TB, b *bus.Bus, name event.Stream) jetstream.StreamConfig {
	t.Helper()
	s, err := b.JetStream().Stream(t.Context(), string(name))
	require.NoError(t, err)
	return s.CachedInfo().Config
}

func TestEnsureStreams_StreamOfEarlierRelease_GetsLimit(t *testing.T) {
	t.Parallel()
	b := connect(t, testkit.NATS(t), bus.Config{}, bus.Deps{})
	for _, spec := range event.Streams() {
		cfg := jetstream.StreamConfig{Name: string(spec.Name), Subjects: spec.Subjects, Duplicates: spec.Duplicates}
		if spec.WorkQueue {
			cfg.Retention = jetstream.WorkQueuePolicy
		}
		if _, err := b.JetStream().CreateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	require.NoError(t, b.EnsureStreams(t.Context()))
	for _, spec := range event.Streams() {
		discard := jetstream.DiscardOld
		if spec.WorkQueue {
			discard = jetstream.DiscardNew
		}
		if got := config(t, b, spec.Name); got.MaxBytes != spec.MaxBytes || got.MaxBytes <= 0 || got.Discard != discard || got.MaxAge != spec.MaxAge {
			t.Errorf("stream %s keeps %d bytes for %s and discards %s, want %+v", spec.Name, got.MaxBytes, got.MaxAge, got.Discard, spec)
		}
	}
	if got := config(t, b, "KV_"+event.StageBucket); got.MaxBytes != event.StageMemoryBytes || got.Discard != jetstream.DiscardNew {
		t.Errorf("the stage memory keeps %d bytes and discards %s", got.MaxBytes, got.Discard)
	}
}

func TestEnsureStreams_LimitOfOperator_Stays(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	cfg := config(t, b, event.StreamFacts)
	cfg.MaxBytes = 5 << 20
	if _, err := b.JetStream().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, b.EnsureStreams(t.Context()))
	if got := config(t, b, event.StreamFacts).MaxBytes; got != 5<<20 {
		t.Errorf("the limit is %d", got)
	}
}

func TestEnsureStreams_SmallServer_Works(t *testing.T) {
	t.Parallel()
	s := testkit.NATSWith(t, testkit.NATSConfig{MaxStore: 10 << 20, MaxMemory: 1 << 20})
	b := connect(t, s, bus.Config{}, bus.Deps{})
	for range 2 {
		require.NoError(t, b.EnsureStreams(t.Context()))
	}
	publish(t, b, "one")
	if got := config(t, b, event.StreamCommands).MaxBytes; got > 0 {
		t.Errorf("the limit is %d on a server with 10 MiB", got)
	}
}

func TestPublish_StreamIsFull_FailsAndKeepsMessages(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	cfg := config(t, b, event.StreamCommands)
	cfg.MaxBytes = 1 << 10
	if _, err := b.JetStream().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	publish(t, b, "first")
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = b.Publish(t.Context(), command(t, string(rune('a'+i))))
	}
	if perr, ok := errors.AsType[*bus.PublishError](err); !ok || perr.Away() {
		t.Errorf("error is %v, want a refusal", err)
	}
	if b.Ready(t.Context()) == nil {
		t.Error("it is ready although the stream rejects messages")
	}
	got := consume(t, b, bus.ConsumeConfig{Consumer: spec()})
	if id := within(t, got, "the first message comes"); id != "first" {
		t.Errorf("%s comes first", id)
	}
}

const lacksReplicas = "keb-lacks-replicas"

// A stream that was lost and is created again must survive the loss of a server, too.
func TestEnsureStreams_Cluster_CreatesThreeReplicas(t *testing.T) {
	t.Parallel()
	for servers, want := range map[int]int{3: 3, 2: 1} {
		t.Run(fmt.Sprintf("%d servers", servers), func(t *testing.T) {
			t.Parallel()
			b := connect(t, testkit.NATSCluster(t, servers)[0], bus.Config{}, bus.Deps{})
			testkit.Eventually(t, time.Minute, "the streams", func() bool { return b.EnsureStreams(t.Context()) == nil })
			names := []event.Stream{"KV_" + event.StageBucket}
			for _, spec := range event.Streams() {
				names = append(names, spec.Name)
			}
			check := func(when string) {
				t.Helper()
				for _, name := range names {
					if got := config(t, b, name); got.Replicas != want || got.MaxBytes <= 0 || (got.Metadata[lacksReplicas] == "") != (want == 3) {
						t.Errorf("%s: stream %s has %d replicas, a limit of %d bytes and the metadata %v, want %d replicas and a limit", when, name, got.Replicas, got.MaxBytes, got.Metadata, want)
					}
				}
			}
			check("created")
			// So are the streams when they are created while too few servers are up.
			for _, name := range names {
				cfg := config(t, b, name)
				cfg.Replicas, cfg.Metadata = 1, map[string]string{lacksReplicas: "true"}
				_, err := b.JetStream().UpdateStream(t.Context(), cfg)
				require.NoError(t, err)
			}
			testkit.Eventually(t, time.Minute, "the streams", func() bool { return b.EnsureStreams(t.Context()) == nil })
			check("extended")
		})
	}
}
