package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/testkit"
)

// ServerTLS starts a PostgreSQL server for this test that accepts only TLS, with this certificate. It returns the address without
// sslmode. With clients the server requires a client certificate. It uses the machine's binaries, or downloaded ones.
func ServerTLS(t testing.TB, pair testkit.KeyPair, clients *testkit.CA) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	server, err := firstOf(ctx, source{"the machine's own binaries", fromMachine}, source{"downloaded binaries", fromDownload})
	if err != nil {
		t.Fatalf("no PostgreSQL for the test: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		if err := server.close(ctx); err != nil && !postgres.IsConnection(err) {
			t.Errorf("stop PostgreSQL: %v", err)
		}
	})
	if err := encrypt(ctx, server.admin, pair, clients); err != nil {
		t.Fatalf("give PostgreSQL a certificate: %v", err)
	}
	address, err := url.Parse(server.url)
	if err != nil {
		t.Fatal(err)
	}
	query := address.Query()
	query.Del("sslmode")
	address.RawQuery = query.Encode()
	testkit.Eventually(t, time.Minute, "PostgreSQL refuses to talk without TLS", func() bool {
		query.Set("sslmode", "disable")
		plain := *address
		plain.RawQuery = query.Encode()
		db, err := postgres.Open(ctx, postgres.Config{URL: plain.String(), MaxOpen: 1})
		if err == nil {
			_ = db.Close()
		}
		return err != nil && strings.Contains(err.Error(), "pg_hba")
	})
	return address.String()
}

// encrypt makes the server write the files, because its user must own them.
func encrypt(ctx context.Context, admin *sqlx.DB, pair testkit.KeyPair, clients *testkit.CA) error {
	access := "local all all trust\nhostssl all all all scram-sha-256\n"
	files := map[string]string{"server.crt": pair.CertFile, "server.key": pair.KeyFile}
	if clients != nil {
		access = "local all all trust\nhostssl all all all scram-sha-256 clientcert=verify-ca\n"
		files["root.crt"] = clients.File
	}
	contents := map[string]string{"pg_hba.conf": access}
	for name, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		contents[name] = string(content)
	}
	conn, err := admin.Connx(ctx)
	if err != nil {
		return err
	}
	var errs []error
	run := func(statement string, args ...any) {
		_, err := conn.ExecContext(ctx, statement, args...)
		errs = append(errs, err)
	}
	for name, content := range contents {
		// The program runs in the data folder.
		run(fmt.Sprintf(`COPY (SELECT line FROM unnest(string_to_array('%s', E'\n')) line) TO PROGRAM 'umask 077; cat > %s'`, content, name))
	}
	if clients != nil {
		run(`ALTER SYSTEM SET ssl_ca_file = 'root.crt'`)
	}
	run(`ALTER SYSTEM SET ssl = on`)
	run(`SELECT pg_reload_conf()`)
	return errors.Join(append(errs, conn.Close())...)
}
