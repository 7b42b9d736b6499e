package installation

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
)

func TestInit_TLS_CertificatesMatch(t *testing.T) {
	t.Parallel()
	cfg := config(t, "avs")
	cfg.TLS = true
	require.NoError(t, Init(cfg))
	files := content(t, cfg.Dir)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(files["broker/ca.crt"])) {
		t.Fatal("the broker has no authority")
	}
	for _, service := range []string{"postgres", "nats", "broker", "orchestrator", "cli", "edge", "worker-avs"} {
		pair, err := tls.X509KeyPair([]byte(files[service+"/tls.crt"]), []byte(files[service+"/tls.key"]))
		if err != nil {
			t.Errorf("%s: %v", service, err)
			continue
		}
		for _, name := range []string{service, "localhost", "127.0.0.1"} {
			for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
				if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
					t.Errorf("%s as %s: %v", service, name, err)
				}
			}
		}
		if strings.Contains(files[service+"/tls.crt"], "PRIVATE KEY") || strings.Contains(files[service+"/ca.crt"], "PRIVATE KEY") {
			t.Errorf("%s: the certificate file contains a key", service)
		}
		info, err := os.Stat(filepath.Join(cfg.Dir, service, "tls.key"))
		if want := map[bool]os.FileMode{true: 0o640, false: 0o444}[service == "postgres"]; err != nil || info.Mode().Perm() != want {
			t.Errorf("the key of %s: %v %v, want %v", service, info.Mode(), err, want)
		}
	}
	if !strings.HasSuffix(files["broker/database-url"], "sslmode=verify-full") || !strings.Contains(files["postgres/pg_hba.conf"], "clientcert=verify-ca") {
		t.Errorf("the database: %q", files["postgres/pg_hba.conf"])
	}
	if _, ok := files["grafana/tls.key"]; ok {
		t.Error("grafana has a key that it does not use")
	}
	// The configuration of NATS has the paths of its container.
	conf, err := os.ReadFile(filepath.Join(cfg.Dir, "nats", "nats.conf"))
	require.NoError(t, err)
	here := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(here, []byte(strings.ReplaceAll(string(conf), "/run/keb/", filepath.Join(cfg.Dir, "nats")+"/")), 0o600))
	opts, err := server.ProcessConfigFile(here)
	require.NoError(t, err)
	if opts.TLSConfig == nil || opts.TLSConfig.ClientAuth != tls.RequireAndVerifyClientCert || opts.TLSConfig.MinVersion < tls.VersionTLS12 {
		t.Errorf("NATS does not require certificates: %+v", opts.TLSConfig)
	}

	// A second run changes nothing.
	require.NoError(t, Init(cfg))
	if diff := cmp.Diff(files, content(t, cfg.Dir)); diff != "" {
		t.Errorf("a second start changes (-before +after)\n%s", diff)
	}
}

func TestInit_CertificateExpiresSoon_IsRenewed(t *testing.T) {
	t.Parallel()
	cfg := config(t, "avs")
	cfg.TLS = true
	require.NoError(t, Init(cfg))
	before := content(t, cfg.Dir)
	// The certificate expires soon, and another authority signed it.
	old := testkit.NewCA(t, "old").Issue(t, testkit.Leaf{Hosts: []string{"broker"}, NotAfter: time.Now().Add(24 * time.Hour)})
	var pem []byte
	for _, path := range []string{old.CertFile, old.KeyFile} {
		part, err := os.ReadFile(path)
		require.NoError(t, err)
		pem = append(pem, part...)
	}
	kept := filepath.Join(cfg.Dir, KeptIn, "tls-broker.pem")
	require.NoError(t, os.Remove(kept))
	require.NoError(t, os.WriteFile(kept, pem, 0o600))
	require.NoError(t, Init(cfg))
	after := content(t, cfg.Dir)
	pair, err := tls.X509KeyPair([]byte(after["broker/tls.crt"]), []byte(after["broker/tls.key"]))
	if err != nil || time.Until(pair.Leaf.NotAfter) < 300*24*time.Hour {
		t.Errorf("the broker keeps a certificate that expires soon: %v", err)
	}
	if after["orchestrator/tls.crt"] != before["orchestrator/tls.crt"] || after["broker/ca.crt"] != before["broker/ca.crt"] {
		t.Error("other files have changed")
	}
}
