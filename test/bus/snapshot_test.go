package bus

import (
	"maps"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
)

// state is the content of the streams, and the configuration of the streams and their consumers.
type state struct {
	Config    map[string]jetstream.StreamConfig
	Subjects  map[string]uint64 // messages by subject
	Consumers map[string]consumerState
}

type consumerState struct {
	Config    jetstream.ConsumerConfig
	Delivered uint64
	Acked     uint64
}

func snapshot(t *testing.T, b *bus.Bus) state {
	t.Helper()
	s := state{Config: map[string]jetstream.StreamConfig{}, Subjects: map[string]uint64{}, Consumers: map[string]consumerState{}}
	names := []string{"KV_" + event.StageBucket}
	for _, spec := range event.Streams() {
		names = append(names, string(spec.Name))
	}
	for _, name := range names {
		stream, err := b.JetStream().Stream(t.Context(), name)
		require.NoErrorf(t, err, "stream %s", name)
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		require.NoError(t, err)
		s.Config[name] = info.Config
		maps.Copy(s.Subjects, info.State.Subjects)
		if name == names[0] {
			continue // the orchestrator has no business with consumers there
		}
		list := stream.ListConsumers(t.Context())
		for c := range list.Info() {
			s.Consumers[name+"/"+c.Name] = consumerState{Config: c.Config, Delivered: c.Delivered.Stream, Acked: c.AckFloor.Stream}
		}
		require.NoError(t, list.Err())
	}
	return s
}
