package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddress_WithPassword_IsRejectedAndHidden(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--operator-addr", "http://u:CANARY@127.0.0.1:1", "operations"}, {"--osb-addr", "u:CANARY@127.0.0.1:1", "runtimes"}} {
		var out, said bytes.Buffer
		if code := Main(t.Context(), args, IO{In: &out, Out: &out, Err: &said}); code == 0 || strings.Contains(said.String(), "CANARY") {
			t.Errorf("%v: %d %s", args, code, said.String())
		}
	}
}

func TestToken_Unencrypted_PrintsWarning(t *testing.T) {
	t.Parallel()
	for addr, warned := range map[string]bool{
		"http://keb.example.org": true, "10.0.0.1:8081": true, "[fe80::1]:8081": true, "https://keb.example.org": false, "localhost:8081": false,
		"127.0.0.1:8081": false, "[::1]:8081": false, "orchestrator:8081": false,
	} {
		var said bytes.Buffer
		o := &options{IO: IO{Err: &said}, operatorAddr: addr, osbAddr: addr, token: "keb_CANARY", user: "keb", password: "keb"}
		_, err := o.operatorClient()
		require.NoError(t, err)
		_, err = o.brokerClient()
		require.NoError(t, err)
		if got := strings.Count(said.String(), "unencrypted"); got != 0 && !warned || got != 2 && warned || strings.Contains(said.String(), "CANARY") {
			t.Errorf("%s: %q", addr, said.String())
		}
		said.Reset()
		o.token = ""
		if _, err := o.operatorClient(); err != nil || said.Len() > 0 {
			t.Errorf("%s without a token: %v, %q", addr, err, said.String())
		}
		_, err = o.brokerClient()
		require.NoError(t, err)
		_, err = (&ordering{options: o}).client()
		require.NoError(t, err)
		if got := strings.Count(said.String(), "password of the OSB API are sent"); got != 0 && !warned || got != 2 && warned {
			t.Errorf("%s with a password: %q", addr, said.String())
		}
	}
}
