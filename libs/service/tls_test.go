package service_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tlsfiles"
)

func fetch(t *testing.T, files tlsfiles.Client, url string) (int, string, error) {
	t.Helper()
	transport, err := files.Transport("KEB_")
	require.NoError(t, err)
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

func TestMetrics_ClientCA_ExemptsHealth(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	// The certificate is not for the address of the health check.
	pair := ca.Issue(t, testkit.Leaf{Hosts: []string{"metrics.keb", "127.0.0.1"}})
	shown := ca.Issue(t, testkit.Leaf{Name: "prometheus"})
	addr := testkit.Addr(t)
	files := tlsfiles.Server{CertFile: pair.CertFile, KeyFile: pair.KeyFile, ClientCAFile: ca.File}
	health := service.NewHealth()
	run, err := service.Metrics{Addr: addr, TLS: files}.Serve(service.Monitoring(prometheus.NewRegistry(), health), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	without := tlsfiles.Client{CAFile: ca.File}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body, err := fetch(t, without, "https://"+addr+path); err != nil || code != http.StatusOK {
			t.Errorf("%s without a certificate: %d %s %v", path, code, body, err)
		}
	}
	if code, body, err := fetch(t, without, "https://"+addr+"/metrics"); err != nil || code != http.StatusForbidden || !strings.Contains(body, "KEB_METRICS_TLS_CLIENT_CA_FILE") {
		t.Errorf("metrics without a certificate: %d %s %v", code, body, err)
	}
	with := tlsfiles.Client{CAFile: ca.File, CertFile: shown.CertFile, KeyFile: shown.KeyFile}
	if code, body, err := fetch(t, with, "https://"+addr+"/metrics"); err != nil || code != http.StatusOK {
		t.Errorf("metrics with a certificate: %d %s %v", code, body, err)
	}
	// Containers call the service with the argument healthcheck and its environment.
	_, port, _ := strings.Cut(addr, ":")
	for cert, want := range map[string]bool{pair.CertFile: true, "": false} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "healthcheck")
		cmd.Env = append(os.Environ(), "KEB_TEST_SERVICE_HELPER=asks", "KEB_METRICS_ADDR=:"+port, "KEB_METRICS_TLS_CERT_FILE="+cert)
		if out, err := cmd.CombinedOutput(); (err == nil) != want {
			t.Errorf("healthcheck with KEB_METRICS_TLS_CERT_FILE=%q: %v %s", cert, err, out)
		}
	}
}

func TestListenTLS_ReachableWithoutTLS_Warns(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	pair := ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}})
	for _, tt := range []struct {
		addr   string
		files  tlsfiles.Server
		warned bool
	}{
		{addr: "127.0.0.1:0"},
		{addr: "0.0.0.0:0", warned: true},
		{addr: ":0", warned: true},
		{addr: ":0", files: tlsfiles.Server{CertFile: pair.CertFile, KeyFile: pair.KeyFile}},
	} {
		said := &testkit.Log{}
		ln, err := service.ListenTLS("KEB_OSB_ADDR", tt.addr, tt.files, slog.New(slog.NewTextHandler(said, nil)))
		require.NoError(t, err)
		_ = ln.Close()
		if got := strings.Contains(said.String(), "level=WARN") && strings.Contains(said.String(), "KEB_OSB_ADDR"); got != tt.warned {
			t.Errorf("%s, TLS %t: the log contains %q", tt.addr, tt.files.Enabled(), said.String())
		}
	}
	if _, err := service.ListenTLS("KEB_OSB_ADDR", "127.0.0.1:0", tlsfiles.Server{CertFile: pair.CertFile}, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "KEB_TLS_KEY_FILE") {
		t.Errorf("half a pair: %v", err)
	}
	if _, err := (service.Metrics{Addr: "127.0.0.1:0", TLS: tlsfiles.Server{CertFile: "none", KeyFile: pair.KeyFile}}).Serve(nil, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "KEB_METRICS_TLS_CERT_FILE") {
		t.Errorf("no file: %v", err)
	}
}
