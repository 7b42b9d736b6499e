package cli

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tlsfiles"
)

// api is a fake of both APIs that requires a client certificate.
func api(t *testing.T, files tlsfiles.Server) (port string) {
	t.Helper()
	plain, err := service.Listen("127.0.0.1:0")
	require.NoError(t, err)
	ln, err := files.Listen(plain, "KEB_TLS_", tlsfiles.Always, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/v2/catalog"):
			_, _ = io.WriteString(w, `{"services":[]}`)
		default:
			_, _ = io.WriteString(w, `{"data":[],"count":0,"totalCount":0}`)
		}
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- service.ServeHTTP(ctx, ln, answer) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	_, port, _ = strings.Cut(ln.Addr().String(), ":")
	return port
}

func TestTLS_EachFile_IsUsed(t *testing.T) {
	t.Parallel()
	ca, other := testkit.NewCA(t, "ours"), testkit.NewCA(t, "theirs")
	server := ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}})
	person := ca.Issue(t, testkit.Leaf{Name: "user"})
	port := api(t, tlsfiles.Server{CertFile: server.CertFile, KeyFile: server.KeyFile, ClientCAFile: ca.File})
	good := []string{"--ca-file", ca.File, "--cert-file", person.CertFile, "--key-file", person.KeyFile}
	for name, tt := range map[string]struct {
		addr  string
		flags []string
		code  int
		says  string
	}{
		"https implied by the files": {addr: "127.0.0.1:", flags: good},
		"https in the address":       {addr: "https://127.0.0.1:", flags: good},
		"no certificate":             {addr: "127.0.0.1:", flags: good[:2], code: 1, says: "set KEB_CERT_FILE and KEB_KEY_FILE"},
		"unknown authority":          {addr: "https://127.0.0.1:", code: 1, says: "set KEB_CA_FILE"},
		"other authority":            {addr: "127.0.0.1:", flags: []string{"--ca-file", other.File}, code: 1, says: "none of the authorities in KEB_CA_FILE"},
		"another name":               {addr: "localhost:", flags: good, code: 1, says: "the server's certificate is not for this name"},
		"missing file":               {addr: "127.0.0.1:", flags: []string{"--ca-file", "none"}, code: 2, says: `KEB_CA_FILE: "none" cannot be read`},
		"half a pair":                {addr: "127.0.0.1:", flags: good[:4], code: 2, says: "KEB_KEY_FILE: is required with KEB_CERT_FILE"},
		"http in the address":        {addr: "http://127.0.0.1:", flags: good, code: 1, says: "HTTP request to an HTTPS server"},
	} {
		for _, command := range [][]string{{"operations"}, {"runtimes"}, {"job", "deprovision-retrigger"}} {
			if tt.addr == "http://127.0.0.1:" && command[0] != "operations" {
				continue // the message differs
			}
			t.Run(name+", "+command[0], func(t *testing.T) {
				t.Parallel()
				var out, said bytes.Buffer
				args := slices.Concat([]string{"--osb-addr", tt.addr + port, "--operator-addr", tt.addr + port}, tt.flags, command)
				if code := Main(t.Context(), args, IO{In: &out, Out: &out, Err: &said}); code != tt.code || !strings.Contains(said.String()+out.String(), tt.says) {
					t.Errorf("%v: %d %s%s; want %d and %q", args, code, said.String(), out.String(), tt.code, tt.says)
				}
			})
		}
	}
}
