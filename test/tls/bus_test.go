package tls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tlsfiles"
)

// encrypted starts a NATS server with a certificate; with clients it requires client certificates.
func encrypted(t *testing.T, pair testkit.KeyPair, clients *testkit.CA, first bool) *server.Server {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	require.NoError(t, err)
	opts := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, TLS: true, TLSTimeout: 60, TLSHandshakeFirst: first,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}
	if clients != nil {
		opts.TLSVerify, opts.TLSConfig.ClientAuth, opts.TLSConfig.ClientCAs = true, tls.RequireAndVerifyClientCert, clients.Pool()
	}
	return run(t, opts)
}

func run(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(opts)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server is not ready")
	}
	return s
}

// address returns the URL of a server with a scheme and a host name.
func address(s *server.Server, scheme, host string) string {
	_, port, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(s.ClientURL(), "nats://"), "tls://"), ":")
	return scheme + "://" + host + ":" + port
}

func TestConnect_TLS_Succeeds(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	pair := ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}})
	shown := ca.Issue(t, testkit.Leaf{Name: "orchestrator"})
	for name, tt := range map[string]struct {
		mutual, first bool
		scheme        string
		files         tlsfiles.Client
	}{
		"tls":                         {scheme: "tls", files: tlsfiles.Client{CAFile: ca.File}},
		"the server demands it":       {scheme: "nats", files: tlsfiles.Client{CAFile: ca.File}},
		"mutual":                      {scheme: "nats", mutual: true, files: tlsfiles.Client{CAFile: ca.File, CertFile: shown.CertFile, KeyFile: shown.KeyFile}},
		"tls before anything else":    {scheme: "tls", first: true, files: tlsfiles.Client{CAFile: ca.File}},
		"mutual before anything else": {scheme: "tls", first: true, mutual: true, files: tlsfiles.Client{CAFile: ca.File, CertFile: shown.CertFile, KeyFile: shown.KeyFile}},
		"mutual, not requested":       {scheme: "tls", files: tlsfiles.Client{CAFile: ca.File, CertFile: shown.CertFile, KeyFile: shown.KeyFile}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clients *testkit.CA
			if tt.mutual {
				clients = ca
			}
			s := encrypted(t, pair, clients, tt.first)
			b, err := bus.Connect(soon(t), bus.Config{URL: address(s, tt.scheme, "127.0.0.1"), TLS: tt.files, TLSFirst: tt.first}, bus.Deps{})
			require.NoError(t, err)
			defer b.Close()
			if err := b.NATS().FlushTimeout(time.Minute); err != nil {
				t.Error(err)
			}
			if state, err := b.NATS().TLSConnectionState(); err != nil || state.Version < tls.VersionTLS12 {
				t.Errorf("version %x, %v", state.Version, err)
			}
		})
	}
}

func TestConnect_InvalidTLS_ReportsReason(t *testing.T) {
	t.Parallel()
	ca, other := testkit.NewCA(t, "ours"), testkit.NewCA(t, "theirs")
	good := ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}})
	expired := ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}, NotAfter: time.Now().Add(-time.Minute)})
	theirs := other.Issue(t, testkit.Leaf{Name: "theirs"})
	for name, tt := range map[string]struct {
		server testkit.KeyPair
		mutual bool
		plain  bool
		host   string
		files  tlsfiles.Client
		says   string
	}{
		"another authority":           {server: good, files: tlsfiles.Client{CAFile: other.File}, says: "none of the authorities in KEB_NATS_CA_FILE"},
		"no authority":                {server: good, says: "set KEB_NATS_CA_FILE"},
		"another host name":           {server: good, host: "localhost", files: tlsfiles.Client{CAFile: ca.File}, says: "the server's certificate is not for this name"},
		"expired":                     {server: expired, files: tlsfiles.Client{CAFile: ca.File}, says: "the server's certificate must be renewed"},
		"no client certificate":       {server: good, mutual: true, files: tlsfiles.Client{CAFile: ca.File}, says: "set KEB_NATS_CERT_FILE and KEB_NATS_KEY_FILE"},
		"that of another authority":   {server: good, mutual: true, files: tlsfiles.Client{CAFile: ca.File, CertFile: theirs.CertFile, KeyFile: theirs.KeyFile}, says: "does not take the certificate in KEB_NATS_CERT_FILE"},
		"a server without tls":        {plain: true, files: tlsfiles.Client{CAFile: ca.File}, says: "give it a certificate, or leave out KEB_NATS_CA_FILE"},
		"a file that is not there":    {server: good, files: tlsfiles.Client{CAFile: "none"}, says: `KEB_NATS_CA_FILE: "none" cannot be read`},
		"a certificate without a key": {server: good, files: tlsfiles.Client{CertFile: theirs.CertFile}, says: "KEB_NATS_KEY_FILE: is required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s *server.Server
			if tt.plain {
				s = run(t, &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
			} else {
				var clients *testkit.CA
				if tt.mutual {
					clients = ca
				}
				s = encrypted(t, tt.server, clients, false)
			}
			host := tt.host
			if host == "" {
				host = "127.0.0.1"
			}
			ctx := soon(t)
			b, err := bus.Connect(ctx, bus.Config{URL: address(s, "nats", host), User: "keb", Password: "CANARY", TLS: tt.files}, bus.Deps{})
			if err == nil {
				b.Close()
				t.Fatal("connected")
			}
			if ctx.Err() != nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "CANARY") {
				t.Errorf("error %q, want %q, at once", err, tt.says)
			}
		})
	}
}

// A reconnecting client presents the current certificate, and reports the reason if the server rejects it.
func TestReconnect_NewCertificate_IsUsed(t *testing.T) {
	t.Parallel()
	ca, next := testkit.NewCA(t, "ours"), testkit.NewCA(t, "next")
	pair := ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}})
	shown := ca.Issue(t, testkit.Leaf{Name: "first"})
	cert, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	require.NoError(t, err)
	var mu sync.Mutex
	trusted, seen := ca.Pool(), ""
	opts := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, TLS: true, TLSVerify: true, TLSTimeout: 60,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert,
			VerifyConnection: func(cs tls.ConnectionState) error {
				mu.Lock()
				defer mu.Unlock()
				seen = cs.PeerCertificates[0].Subject.CommonName
				_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: trusted, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
				return err
			},
		},
	}
	s := run(t, opts)
	said := &testkit.Log{}
	b, err := bus.Connect(soon(t), bus.Config{
		URL: address(s, "tls", "127.0.0.1"), TLS: tlsfiles.Client{CAFile: ca.File, CertFile: shown.CertFile, KeyFile: shown.KeyFile},
	}, bus.Deps{Log: slog.New(slog.NewTextHandler(said, nil))})
	require.NoError(t, err)
	defer b.Close()
	mu.Lock()
	trusted = next.Pool()
	mu.Unlock()
	require.NoError(t, b.NATS().ForceReconnect())
	testkit.Eventually(t, time.Minute, "the log says which file", func() bool { return strings.Contains(said.String(), "KEB_NATS_CERT_FILE") })
	other, err := os.ReadFile(pair.KeyFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(shown.KeyFile, other, 0o600))
	testkit.Eventually(t, time.Minute, "the log says that the files do not fit", func() bool {
		return strings.Contains(said.String(), "is not the key of the certificate")
	})
	next.Renew(t, shown, testkit.Leaf{Name: "second"})
	testkit.Eventually(t, time.Minute, "the connection is back", b.NATS().IsConnected)
	mu.Lock()
	defer mu.Unlock()
	if seen != "second" {
		t.Errorf("the server was shown %q", seen)
	}
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
