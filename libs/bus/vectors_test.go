package bus_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestVectors_HeaderValues_AreEncodedAndDecoded(t *testing.T) {
	t.Parallel()
	type value struct {
		Text   string `json:"text,omitempty"`
		Header string `json:"header,omitempty"`
		Error  bool   `json:"error,omitempty"`
	}
	read := func(text string) value {
		e, err := bus.Decode(header("ce-subject", text), nil)
		if err != nil {
			return value{Error: true}
		}
		return value{Text: e.Subject()}
	}
	testkit.Vectors(t, "percent.json", func(in value) value {
		if in.Header != "" {
			return read(in.Header)
		}
		e, err := bus.New("t", "1", "/s", in.Text, at, nil)
		require.NoError(t, err)
		var h nats.Header
		h, _, err = bus.Encode(&e)
		require.NoError(t, err)
		require.Equal(t, value{Text: in.Text}, read(h["ce-subject"][0]))
		return value{Header: h["ce-subject"][0]}
	})
}

// deadIn is a message that a consumer cannot read.
type deadIn struct {
	jetstream.Msg

	Worker, Reason string
	MaxPayload     int64
	Message        struct {
		Subject, Body string
		Headers       nats.Header
		Sequence      uint64
		Time          time.Time
	}
}

func (in *deadIn) Subject() string      { return in.Message.Subject }
func (in *deadIn) Data() []byte         { return []byte(in.Message.Body) }
func (in *deadIn) Headers() nats.Header { return in.Message.Headers }

func (in *deadIn) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: in.Message.Sequence}, Timestamp: in.Message.Time}, nil
}

func TestVectors_DeadLetters_AreMade(t *testing.T) {
	t.Parallel()
	type out struct {
		Subject string      `json:"subject"`
		Headers nats.Header `json:"headers"`
		Body    string      `json:"body"`
	}
	testkit.Vectors(t, "dead-letters.json", func(in deadIn) out {
		m := bus.DeadLetterOf(&in, in.Worker, in.Reason, in.MaxPayload)
		return out{Subject: m.Subject, Headers: m.Header, Body: string(m.Data)}
	})
}
