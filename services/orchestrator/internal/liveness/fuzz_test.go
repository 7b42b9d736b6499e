package liveness

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/worker"
)

// Any client of the bus may send an answer.
func FuzzWorkerAnswer(f *testing.F) {
	for _, seed := range []any{
		micro.Info{ServiceIdentity: micro.ServiceIdentity{ID: "1", Metadata: map[string]string{worker.MetadataWorker: "avs", worker.MetadataSteps: "A,,B"}}},
		micro.Stats{
			ServiceIdentity: micro.ServiceIdentity{ID: "1", Metadata: map[string]string{worker.MetadataWorker: "avs"}},
			Endpoints:       []*micro.EndpointStats{nil, {Data: json.RawMessage(`{"commands":["a/1"]}`)}, {Data: json.RawMessage(`[]`)}},
		},
		nil,
		[]int{1},
		"text",
	} {
		raw, err := json.Marshal(seed)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l := New(Config{Grace: time.Minute}, nil, time.Now, slog.New(slog.DiscardHandler))
		l.see(data)
		for _, w := range l.Workers() {
			if w.Name == "" {
				t.Errorf("a worker without a name: %+v", w)
			}
			for _, step := range w.Steps {
				if step == "" || strings.Contains(step, ",") || !l.Serves(w.Name, step) {
					t.Errorf("%s serves %q: %t", w.Name, step, l.Serves(w.Name, step))
				}
			}
		}
		if id, commands, ok := readTaken(data); !ok && commands != nil {
			t.Errorf("%q has the commands %q although ok is false", id, commands)
		}
	})
}
