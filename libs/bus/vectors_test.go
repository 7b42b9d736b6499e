package bus_test

import (
	"testing"

	"github.com/nats-io/nats.go"
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
