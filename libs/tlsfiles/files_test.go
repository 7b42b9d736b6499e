package tlsfiles_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tlsfiles"
)

func TestValidate_InvalidFiles_AreNamed(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	server := ca.Issue(t, testkit.Leaf{Hosts: []string{"localhost"}})
	another := ca.Issue(t, testkit.Leaf{Hosts: []string{"localhost"}})
	clients := ca.Issue(t, testkit.Leaf{Name: "client"})
	expired := ca.Issue(t, testkit.Leaf{Hosts: []string{"localhost"}, NotAfter: time.Now().Add(-time.Hour)})
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	garbage := file("garbage", "CANARY is no certificate")
	broken := file("broken", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("CANARY")})))
	brokenKey := file("broken.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("CANARY")})))
	locked := file("locked.key", string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("CANARY")})))
	huge := file("huge", strings.Repeat("CANARY\n", 200_000))
	for name, tt := range map[string]struct {
		files tlsfiles.Server
		says  []string
	}{
		"no key":                  {tlsfiles.Server{CertFile: server.CertFile}, []string{"KEB_TLS_KEY_FILE: is required with KEB_TLS_CERT_FILE"}},
		"no certificate":          {tlsfiles.Server{KeyFile: server.KeyFile}, []string{"KEB_TLS_CERT_FILE: is required with KEB_TLS_KEY_FILE"}},
		"an authority alone":      {tlsfiles.Server{ClientCAFile: ca.File}, []string{"KEB_TLS_CLIENT_CA_FILE: has no effect without KEB_TLS_CERT_FILE"}},
		"a missing file":          {tlsfiles.Server{CertFile: "no-such-file", KeyFile: server.KeyFile}, []string{`KEB_TLS_CERT_FILE: "no-such-file" cannot be read: no such file`}},
		"a missing key":           {tlsfiles.Server{CertFile: server.CertFile, KeyFile: "no-such-key"}, []string{`KEB_TLS_KEY_FILE: "no-such-key" cannot be read`}},
		"a folder":                {tlsfiles.Server{CertFile: dir, KeyFile: server.KeyFile}, []string{"KEB_TLS_CERT_FILE", "is not a file"}},
		"a file that is too long": {tlsfiles.Server{CertFile: huge, KeyFile: server.KeyFile}, []string{"KEB_TLS_CERT_FILE", "more than 1048576 bytes"}},
		"no PEM":                  {tlsfiles.Server{CertFile: garbage, KeyFile: server.KeyFile}, []string{"KEB_TLS_CERT_FILE", "holds no certificate; want a PEM file"}},
		"key as certificate":      {tlsfiles.Server{CertFile: server.KeyFile, KeyFile: server.KeyFile}, []string{"KEB_TLS_CERT_FILE", "holds no certificate"}},
		"certificate as key":      {tlsfiles.Server{CertFile: server.CertFile, KeyFile: server.CertFile}, []string{"KEB_TLS_KEY_FILE", "holds no private key"}},
		"an unreadable one":       {tlsfiles.Server{CertFile: broken, KeyFile: server.KeyFile}, []string{"KEB_TLS_CERT_FILE", "a certificate cannot be read"}},
		"an unreadable key":       {tlsfiles.Server{CertFile: server.CertFile, KeyFile: brokenKey}, []string{"KEB_TLS_KEY_FILE"}},
		"a key with a passphrase": {tlsfiles.Server{CertFile: server.CertFile, KeyFile: locked}, []string{"KEB_TLS_KEY_FILE", "has a passphrase; want one without"}},
		"the key of another":      {tlsfiles.Server{CertFile: server.CertFile, KeyFile: another.KeyFile}, []string{"KEB_TLS_KEY_FILE", "is not the key of the certificate in KEB_TLS_CERT_FILE"}},
		"an expired one":          {tlsfiles.Server{CertFile: expired.CertFile, KeyFile: expired.KeyFile}, []string{"KEB_TLS_CERT_FILE", "expired on", "renew it"}},
		"that of a client":        {tlsfiles.Server{CertFile: clients.CertFile, KeyFile: clients.KeyFile}, []string{"KEB_TLS_CERT_FILE", "not for servers (serverAuth)"}},
		"no authority in it":      {tlsfiles.Server{CertFile: server.CertFile, KeyFile: server.KeyFile, ClientCAFile: garbage}, []string{"KEB_TLS_CLIENT_CA_FILE", "holds no certificate"}},
		"an expired authority":    {tlsfiles.Server{CertFile: server.CertFile, KeyFile: server.KeyFile, ClientCAFile: expired.CertFile}, []string{"KEB_TLS_CLIENT_CA_FILE", "expired on"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tt.files.Validate("KEB_TLS_")
			if err == nil {
				t.Fatal("no error")
			}
			wantAll(t, err.Error(), tt.says...)
			if strings.Contains(err.Error(), "CANARY") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q shows what is in the file, or is more than a line", err)
			}
		})
	}
	for name, tt := range map[string]struct {
		files tlsfiles.Client
		says  string
	}{
		"half a pair":      {tlsfiles.Client{CertFile: clients.CertFile}, "KEB_NATS_KEY_FILE: is required with KEB_NATS_CERT_FILE"},
		"the other half":   {tlsfiles.Client{KeyFile: clients.KeyFile}, "KEB_NATS_CERT_FILE: is required with KEB_NATS_KEY_FILE"},
		"no authority":     {tlsfiles.Client{CAFile: garbage}, "KEB_NATS_CA_FILE: "},
		"that of a server": {tlsfiles.Client{CertFile: server.CertFile, KeyFile: server.KeyFile}, "not for clients (clientAuth)"},
	} {
		if err := tt.files.Validate("KEB_NATS_"); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("client, %s: %v, want %q", name, err, tt.says)
		}
	}
	if err := (tlsfiles.Server{CertFile: server.CertFile, KeyFile: server.KeyFile, ClientCAFile: ca.File}).Validate("KEB_TLS_"); err != nil {
		t.Errorf("good files: %v", err)
	}
	if err := (tlsfiles.Server{}).Validate("KEB_TLS_"); err != nil {
		t.Errorf("no files: %v", err)
	}
}

// During a replacement, a bundle can contain the old authority and the new one.
func TestValidate_ExpiredAuthorityInBundle_IsAccepted(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	old := ca.Issue(t, testkit.Leaf{Hosts: []string{"old"}, NotAfter: time.Now().Add(-time.Hour)})
	var bundle []byte
	for _, path := range []string{old.CertFile, ca.File} {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		bundle = append(bundle, content...)
	}
	path := filepath.Join(t.TempDir(), "bundle.pem")
	require.NoError(t, os.WriteFile(path, bundle, 0o600))
	cfg, err := tlsfiles.Client{CAFile: path}.Config("KEB_")
	require.NoError(t, err)
	if !cfg.RootCAs.Equal(ca.Pool()) {
		t.Error("the bundle is not the authority that is still good")
	}
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte(""))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(dir, "file")
		require.NoError(t, os.WriteFile(path, content, 0o600))
		if err := (tlsfiles.Server{CertFile: path, KeyFile: path}).Validate("KEB_TLS_"); err == nil {
			block, _ := pem.Decode(content)
			if block == nil {
				t.Error("taken without any PEM in it")
			}
		} else if !strings.HasPrefix(err.Error(), "KEB_TLS_") {
			t.Errorf("%q names no variable", err)
		}
		cfg, err := tlsfiles.Client{CAFile: path}.Config("KEB_")
		if err == nil && cfg.RootCAs.Equal(x509.NewCertPool()) {
			t.Error("an empty list of authorities is taken")
		}
	})
}
