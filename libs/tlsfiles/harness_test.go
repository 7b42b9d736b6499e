package tlsfiles_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tlsfiles"
)

// site is a server as the product configures it.
type site struct {
	addr string
	log  *testkit.Log
}

func serve(t *testing.T, files tlsfiles.Server, demand tlsfiles.Demand, h http.Handler) *site {
	t.Helper()
	plain, err := service.Listen("127.0.0.1:0")
	require.NoError(t, err)
	s := &site{addr: plain.Addr().String(), log: &testkit.Log{}}
	ln, err := files.Listen(plain, "KEB_TLS_", demand, s.log.Logger())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.ServeHTTP(ctx, ln, h) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

func hello(w http.ResponseWriter, r *http.Request) {
	who := ""
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		who = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	_, _ = fmt.Fprintf(w, "%s %s", r.Proto, who)
}

// client returns an http.Client with files.
func client(t *testing.T, files tlsfiles.Client) *http.Client {
	t.Helper()
	transport, err := files.Transport("KEB_")
	require.NoError(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(t *testing.T, c *http.Client, url string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

func serverFiles(pair testkit.KeyPair) tlsfiles.Server {
	return tlsfiles.Server{CertFile: pair.CertFile, KeyFile: pair.KeyFile}
}

func port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

func wantAll(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not contain %q", text, want)
		}
	}
}
