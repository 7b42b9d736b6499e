package bus

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A message counts as published only if a stream says so, and the client's timeout has limits.
func FuzzAckError(f *testing.F) {
	for _, seed := range []string{
		`{"stream":"KEB_COMMANDS","seq":1}`, `{"stream":"KEB_COMMANDS","seq":1,"duplicate":true}`, ``, `{}`, `{"error":{"code":503,"description":"x"}}`,
		`{"stream":"S","error":{"code":400}}`, `{"stream":"","seq":1}`, `{"stream":1}`, `{"stream":`, `[]`, `{"error":null}`,
	} {
		f.Add([]byte(seed), "503", "1000")
	}
	f.Add([]byte{}, "", "-1")
	f.Add([]byte{}, "404", "99999999999999999999")
	b := &Bus{cfg: Config{Timeout: 5 * time.Second}}
	f.Fuzz(func(t *testing.T, data []byte, status, wait string) {
		m := &nats.Msg{Data: data, Header: nats.Header{"Status": {status}, headerWait: {wait}}}
		err := ackError(m)
		var ack struct {
			Error json.RawMessage `json:"error"`
		}
		if json.Unmarshal(data, &ack) == nil && len(ack.Error) > 0 && string(ack.Error) != "null" && err == nil {
			t.Errorf("%s counts as taken", data)
		}
		if err == nil && !strings.Contains(strings.ToLower(string(data)), "stream") && !strings.Contains(string(data), `\u`) {
			t.Errorf("%q counts as taken", data)
		}
		if got := b.waitOf(m); got <= 0 || got > max(maxWait, b.cfg.Timeout) {
			t.Errorf("an asker that waits %q waits %s", wait, got)
		}
	})
}
