package bus_test

import (
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
)

// FuzzDecode: any input is either a valid event that survives another round trip, or ErrUnreadable.
func FuzzDecode(f *testing.F) {
	f.Add("ce-specversion", "1.0", "ce-id", "1", "ce-subject", "50%25", []byte(`{}`))
	f.Add("Ce-Specversion", "1.0", "CE-ID", "1", "ce-time", "2026-11-21T08:00:00Z", []byte(``))
	f.Add("content-type", "application/cloudevents+json", "a", "b", "c", "d", []byte(`{"specversion":"1.0","id":"1","type":"t","source":"/s","data_base64":"AA=="}`))
	f.Add("content-type", "application/cloudevents", "a", "b", "c", "d", []byte(`{"specversion":"0.3","id":"1","type":"t","source":"/s","data":"x","datacontentencoding":"base64"}`))
	f.Add("ce-specversion", "1.0", "ce-source", "%", "ce-dataschema", "x:", []byte(`null`))
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2, n3, v3 string, data []byte) {
		h := nats.Header{"ce-type": {"t"}, "ce-source": {"/s"}, "ce-id": {"1"}}
		h[n1], h[n2], h[n3] = []string{v1}, []string{v2}, []string{v3}
		e, err := bus.Decode(h, data)
		if err != nil {
			if !errors.Is(err, bus.ErrUnreadable) {
				t.Errorf("error is %v, want ErrUnreadable", err)
			}
			return
		}
		_, _ = bus.Data[event.StepExecute](e)
		h2, data2, err := bus.Encode(&e)
		require.NoError(t, err, "what was read cannot be written")
		again, err := bus.Decode(h2, data2)
		require.NoError(t, err, "what was written cannot be read")
		if e.ID() != again.ID() || e.Type() != again.Type() || e.Source() != again.Source() || e.Subject() != again.Subject() {
			t.Errorf("event changed on the way (-want +got):\n%s", cmp.Diff(e.String(), again.String()))
		}
	})
}

// FuzzAttributeComesBack: any valid text survives a round trip as an attribute.
func FuzzAttributeComesBack(f *testing.F) {
	for _, s := range []string{"plain", `a "b" 100%`, "ä€😀", "\r\nx: y", "%25", "\x00\x7f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := fullEvent(t)
		e.SetExtension("note", s)
		h, data, err := bus.Encode(&e)
		require.NoError(t, err)
		for _, c := range []byte(h["ce-note"][0]) {
			if c <= ' ' || c > '~' {
				t.Fatalf("%q is written as %q", s, h["ce-note"][0])
			}
		}
		got, err := bus.Decode(h, data)
		if s == "" || err != nil {
			if err == nil || s == "" {
				return
			}
			if errors.Is(err, bus.ErrUnreadable) && !utf8.ValidString(s) {
				return
			}
			t.Fatal(err)
		}
		if v := got.Extensions()["note"]; v != s {
			t.Errorf("%q comes back as %q", s, v)
		}
	})
}
