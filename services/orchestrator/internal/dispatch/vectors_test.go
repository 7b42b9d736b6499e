package dispatch_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

type resultMessage struct {
	Subject string
	Headers map[string]string
	Body    string
}

func TestVectors_Results_AreDecoded(t *testing.T) {
	t.Parallel()
	type in struct {
		Outcome event.Outcome
		Command struct {
			OperationID string
			Cursor      int64
		}
		Worker event.Worker
	}
	for _, c := range testkit.ReadVectors[in, resultMessage](t, "results.json") {
		id, r, err := decode(t, c.Out)
		require.NoError(t, err, c.Name)
		if id != c.In.Command.OperationID || r.Cursor != c.In.Command.Cursor || r.Outcome != c.In.Outcome || r.Worker != c.In.Worker {
			t.Errorf("%s: got operation %s and %+v", c.Name, id, r)
		}
		if worker := event.WorkerOfResult(c.Out.Subject); worker != c.In.Worker.Name {
			t.Errorf("%s: the worker of %s is %q", c.Name, c.Out.Subject, worker)
		}
	}
}

func TestVectors_RetryAfter_IsBounded(t *testing.T) {
	t.Parallel()
	type in struct{ RetryAfter string }
	type out struct {
		Seconds *float64 `json:"seconds,omitempty"`
		Error   bool     `json:"error,omitempty"`
	}
	var retry resultMessage
	for _, c := range testkit.ReadVectors[struct{}, resultMessage](t, "results.json") {
		if c.Name == "retry with an error" {
			retry = c.Out
		}
	}
	const value = `"retryAfter":10`
	require.Contains(t, retry.Body, value)
	testkit.Vectors(t, "retry-after.json", func(in in) out {
		m := retry
		m.Body = strings.Replace(m.Body, value, `"retryAfter":`+in.RetryAfter, 1)
		_, r, err := decode(t, m)
		if err != nil {
			return out{Error: true}
		}
		seconds := r.RetryAfter.Seconds()
		return out{Seconds: &seconds}
	})
}

func decode(t *testing.T, m resultMessage) (string, engine.Result, error) {
	t.Helper()
	h := nats.Header{}
	for name, value := range m.Headers {
		h[name] = []string{value}
	}
	e, err := bus.Decode(h, []byte(m.Body))
	require.NoError(t, err)
	return dispatch.DecodeResult(e)
}
