package postgres_test

import (
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tlsfiles"
)

// with returns an address with additional parameters, and another host unless it is empty.
func with(t *testing.T, address, host string, parameters map[string]string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	query := u.Query()
	for name, value := range parameters {
		query.Set(name, value)
	}
	u.RawQuery = query.Encode()
	if host != "" {
		u.Host = host + ":" + u.Port()
	}
	return u.String()
}

func TestOpen_TLS_Succeeds(t *testing.T) {
	t.Parallel()
	ca, other := testkit.NewCA(t, "ours"), testkit.NewCA(t, "theirs")
	address := pgtest.ServerTLS(t, ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}}), ca)
	password := strings.Split(strings.Split(address, "@")[0], ":")[2]
	shown, theirs := ca.Issue(t, testkit.Leaf{Name: "broker"}), other.Issue(t, testkit.Leaf{Name: "theirs"})
	files := tlsfiles.Client{CAFile: ca.File, CertFile: shown.CertFile, KeyFile: shown.KeyFile}
	plain := pgtest.Database(t, nil)

	for name, cfg := range map[string]postgres.Config{
		"with files":                     {URL: address, TLS: files},
		"with a mode that says the same": {URL: with(t, address, "", map[string]string{"sslmode": "verify-full"}), TLS: files},
		"with parameters of the URL": {URL: with(t, address, "", map[string]string{
			"sslmode": "verify-full", "sslrootcert": ca.File, "sslcert": shown.CertFile, "sslkey": shown.KeyFile,
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var version string
			if err := open(t, cfg).GetContext(t.Context(), &version, `SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl`); err != nil ||
				version != "TLSv1.3" && version != "TLSv1.2" {
				t.Errorf("the session has %q, %v", version, err)
			}
		})
	}
	for name, tt := range map[string]struct {
		cfg  postgres.Config
		says string
	}{
		"another authority": {
			postgres.Config{URL: address, TLS: tlsfiles.Client{CAFile: other.File, CertFile: shown.CertFile, KeyFile: shown.KeyFile}},
			"none of the authorities in KEB_DATABASE_CA_FILE",
		},
		"no authority":                      {postgres.Config{URL: with(t, address, "", map[string]string{"sslmode": "verify-full"})}, "set KEB_DATABASE_CA_FILE"},
		"another host name":                 {postgres.Config{URL: with(t, address, "localhost", nil), TLS: files}, "the server's certificate is not for this name"},
		"no client certificate":             {postgres.Config{URL: address, TLS: tlsfiles.Client{CAFile: ca.File}}, "requires a valid client certificate"},
		"that of another authority":         {postgres.Config{URL: address, TLS: tlsfiles.Client{CAFile: ca.File, CertFile: theirs.CertFile, KeyFile: theirs.KeyFile}}, "does not take the certificate in KEB_DATABASE_CERT_FILE"},
		"without tls":                       {postgres.Config{URL: with(t, address, "", map[string]string{"sslmode": "disable"})}, "pg_hba.conf"},
		"a server without tls":              {postgres.Config{URL: with(t, plain, "", map[string]string{"sslmode": "verify-full"})}, "give the server a certificate"},
		"a file that is not there":          {postgres.Config{URL: address, TLS: tlsfiles.Client{CAFile: "none"}}, `KEB_DATABASE_CA_FILE: "none" cannot be read`},
		"a mode that contradicts the files": {postgres.Config{URL: with(t, address, "", map[string]string{"sslmode": "require"}), TLS: files}, "sslmode=require in the database URL contradicts"},
		"a parameter and its file":          {postgres.Config{URL: with(t, address, "", map[string]string{"sslrootcert": ca.File}), TLS: files}, "sslrootcert in the database URL and KEB_DATABASE_CA_FILE exclude each other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := within(t, time.Minute)
			db, err := postgres.Open(begun, tt.cfg)
			if err == nil {
				_ = db.Close()
				t.Fatal("opened")
			}
			if begun.Err() != nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), password) {
				t.Errorf("error %q, want %q, at once and without the password", err, tt.says)
			}
		})
	}
	t.Run("a new session shows the new certificate", func(t *testing.T) {
		t.Parallel()
		pair := ca.Issue(t, testkit.Leaf{Name: "first"})
		db := open(t, postgres.Config{URL: address, TLS: tlsfiles.Client{CAFile: ca.File, CertFile: pair.CertFile, KeyFile: pair.KeyFile}})
		db.SetMaxIdleConns(0)
		for _, name := range []string{"first", "second"} {
			ca.Renew(t, pair, testkit.Leaf{Name: name})
			var got string
			if err := db.GetContext(t.Context(), &got, `SELECT client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()`); err != nil || got != "/CN="+name {
				t.Errorf("the server was shown %q, %v; want %s", got, err, name)
			}
		}
	})
}

// While the files are replaced one after the other, a statement must fail with a retryable error.
func TestSession_MismatchedTLSFiles_ReturnsConnectionError(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	address := pgtest.ServerTLS(t, ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}}), ca)
	shown, next := ca.Issue(t, testkit.Leaf{Name: "broker"}), ca.Issue(t, testkit.Leaf{Name: "broker"})
	db := open(t, postgres.Config{URL: address, TLS: tlsfiles.Client{CAFile: ca.File, CertFile: shown.CertFile, KeyFile: shown.KeyFile}})
	key, err := os.ReadFile(next.KeyFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(shown.KeyFile, key, 0o600))
	held, err := db.Connx(t.Context())
	require.NoError(t, err)
	defer func() { _ = held.Close() }()
	_, err = db.ExecContext(t.Context(), `SELECT 1`) // in a new session
	if !postgres.IsConnection(err) || !strings.Contains(err.Error(), "is not the key of the certificate") {
		t.Errorf("error %v", err)
	}
}
