package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pglocal"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
)

// server starts a server of its own.
func server(t *testing.T, settings map[string]string) *pglocal.Server {
	t.Helper()
	s, err := pglocal.Start(within(t, time.Minute), pglocal.Config{DataDir: testkit.MemoryDir(t) + "/data", Settings: settings})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := s.Stop(within(t, time.Minute)); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The server reports a commit as successful when a cancel request ends its wait for the standby.
func TestCommit_StandbyIsGone_IsNotAcknowledged(t *testing.T) {
	t.Parallel()
	s := server(t, map[string]string{"synchronous_commit": "on", "synchronous_standby_names": "standby"})
	local := open(t, postgres.Config{URL: s.URL("postgres") + "&synchronous_commit=local"})
	exec(t, local, `CREATE TABLE t (n int)`)
	const insert = `INSERT INTO t VALUES (1)`
	tests := map[string]func(ctx context.Context, db *sqlx.DB) error{
		"statement": func(ctx context.Context, db *sqlx.DB) error {
			_, err := db.ExecContext(ctx, insert)
			return err
		},
		"statement with a parameter": func(ctx context.Context, db *sqlx.DB) error {
			_, err := db.ExecContext(ctx, `INSERT INTO t VALUES ($1)`, 2)
			return err
		},
		"transaction": func(ctx context.Context, db *sqlx.DB) error {
			return postgres.InTx(ctx, db, func(tx *sqlx.Tx) error {
				_, err := tx.ExecContext(ctx, insert)
				return err
			})
		},
	}
	for name, call := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, postgres.Config{URL: s.URL("postgres")})
			returns(t, func(ctx context.Context) error { return call(ctx, db) })
		})
	}
}

func host(t *testing.T, rawURL string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	return u.Host
}

// A server that is read-only takes the place of a standby.
func TestOpen_SeveralHosts_FindsPrimary(t *testing.T) {
	t.Parallel()
	standby := server(t, map[string]string{"default_transaction_read_only": "on"})
	primary := pgtest.Database(t, nil)
	silent := testkit.Proxy(t, host(t, primary))
	silent.Stall()
	u, err := url.Parse(primary)
	require.NoError(t, err)
	for name, first := range map[string]string{"read-only": fmt.Sprintf("127.0.0.1:%d", standby.Port()), "down": testkit.Addr(t), "silent": silent.Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, postgres.Config{URL: strings.Replace(primary, u.Host, first+","+u.Host, 1)})
			ctx := within(t, 3*time.Second) // less than the driver waits for a silent server
			var port string
			require.NoError(t, db.GetContext(ctx, &port, `SELECT current_setting('port')`))
			if port != u.Port() {
				t.Errorf("connected to port %s, want %s", port, u.Port())
			}
		})
	}
}

func TestOpen_OnlyStandby_Waits(t *testing.T) {
	t.Parallel()
	standby := server(t, map[string]string{"default_transaction_read_only": "on"})
	_, err := postgres.Open(within(t, 2*time.Second), postgres.Config{URL: standby.URL("postgres")})
	if !postgres.IsConnection(err) || !strings.Contains(fmt.Sprint(err), "not the primary") {
		t.Errorf("got %v, want a connection error that names the reason", err)
	}
}

// pair starts a primary and its synchronous standby.
func pair(t *testing.T) (primary, standby *pglocal.Server, promote func()) {
	t.Helper()
	ctx, dir := within(t, time.Minute), testkit.MemoryDir(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	start := func(name string) *pglocal.Server {
		s, err := pglocal.Start(ctx, pglocal.Config{DataDir: filepath.Join(dir, name), Settings: map[string]string{"synchronous_commit": "on"}})
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := s.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	primary = start("primary")
	require.NoError(t, pgtest.MakeStandby(ctx, primary, filepath.Join(dir, "primary"), filepath.Join(dir, "standby")))
	standby = start("standby")
	db := open(t, postgres.Config{URL: primary.URL("postgres")})
	exec(t, db, `ALTER SYSTEM SET synchronous_standby_names = '*'`)
	exec(t, db, `SELECT pg_reload_conf()`)
	testkit.Eventually(t, time.Minute, "a synchronous standby", func() bool {
		return count(t, db, `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 1
	})
	return primary, standby, func() { require.NoError(t, pgtest.Promote(ctx, filepath.Join(dir, "standby"))) }
}

func TestPool_StandbyIsPromoted_Follows(t *testing.T) {
	t.Parallel()
	primary, standby, promote := pair(t)
	proxy := testkit.Proxy(t, host(t, primary.URL("postgres")))
	listed := strings.Replace(primary.URL("postgres"), host(t, primary.URL("postgres")), proxy.Addr()+","+host(t, standby.URL("postgres")), 1)
	db := open(t, postgres.Config{URL: listed})
	exec(t, db, `CREATE TABLE t (n int)`)
	held, err := db.Connx(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	port := func(db *sqlx.DB) int { return count(t, db, `SELECT current_setting('port')::int`) }
	if got := port(db); got != primary.Port() {
		t.Fatalf("connected to port %d, want the primary at %d", got, primary.Port())
	}

	// A call without a deadline ends because the pool finds the promoted standby.
	proxy.Stall()
	waiting := make(chan error, 1)
	go func() {
		_, err := held.ExecContext(context.WithoutCancel(t.Context()), `INSERT INTO t VALUES (1)`)
		waiting <- err
	}()
	promoted := time.Now()
	promote()
	select {
	case err := <-waiting:
		if !postgres.IsConnection(err) {
			t.Errorf("the call on the silent primary ended with %v, want an error of the connection", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the call on the silent primary has not ended")
	}
	testkit.Eventually(t, time.Minute, "the pool to follow", func() bool {
		_, err := db.ExecContext(within(t, 2*time.Second), `INSERT INTO t VALUES (2)`)
		return err == nil
	})

	t.Logf("the pool writes to the promoted standby %.1f s after the promotion began", time.Since(promoted).Seconds())

	// The old primary comes back, and still accepts sessions that write. It is the first one in the list.
	proxy.Restore()
	old := open(t, postgres.Config{URL: primary.URL("postgres")})
	returns(t, func(ctx context.Context) error {
		_, err := old.ExecContext(ctx, `INSERT INTO t VALUES (3)`)
		return err
	})
	for name, db := range map[string]*sqlx.DB{"pool": db, "new pool": open(t, postgres.Config{URL: listed})} {
		if got := port(db); got != standby.Port() {
			t.Errorf("the %s is connected to port %d, want the promoted standby at %d", name, got, standby.Port())
		}
	}
}

// A pool that is not used between the loss of its sessions and the return of the old primary must not trust that server.
func TestPool_UnusedDuringPromotion_Follows(t *testing.T) {
	t.Parallel()
	primary, standby, promote := pair(t)
	proxy := testkit.Proxy(t, host(t, primary.URL("postgres")))
	db := open(t, postgres.Config{URL: strings.Replace(primary.URL("postgres"), host(t, primary.URL("postgres")), proxy.Addr()+","+host(t, standby.URL("postgres")), 1)})
	const port = `SELECT current_setting('port')::int`
	if got := count(t, db, port); got != primary.Port() {
		t.Fatalf("connected to port %d, want the primary at %d", got, primary.Port())
	}
	proxy.Cut()
	promote()
	testkit.Eventually(t, time.Minute, "the standby to accept sessions that write", func() bool {
		promoted, err := postgres.Open(within(t, 5*time.Second), postgres.Config{URL: standby.URL("postgres")})
		return err == nil && promoted.Close() == nil
	})
	proxy.Restore()
	if got := count(t, db, port); got != standby.Port() {
		t.Errorf("connected to port %d, want the promoted standby at %d", got, standby.Port())
	}
}
