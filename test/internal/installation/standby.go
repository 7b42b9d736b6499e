//go:build linux

package installation

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pglocal"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
)

// Node is one of the two Postgres servers of an installation with a standby.
type Node struct {
	Name   string // ToPostgres or ToStandby
	Server *pglocal.Server
	cfg    pglocal.Config
}

// startStandby makes the running Postgres the primary of a synchronous standby.
func (w *World) startStandby(cfg Config) {
	w.T.Helper()
	standby := w.pgConfig
	standby.DataDir, standby.Port = filepath.Join(w.Dir, "standby", "data"), port(w.Addr[ToStandby])
	require.NoError(w.T, os.Mkdir(filepath.Dir(standby.DataDir), 0o755))
	require.NoError(w.T, pgtest.MakeStandby(w.T.Context(), w.Postgres, w.pgConfig.DataDir, standby.DataDir))
	w.Primary = &Node{Name: ToPostgres, Server: w.Postgres, cfg: w.pgConfig}
	w.Standby = &Node{Name: ToStandby, cfg: standby}
	w.Start(w.Standby)
	w.Synchronize()
	w.DB = w.Open(w.databaseURL(w.Postgres.URL("keb"), w.Addr[ToPostgres], w.Addr[ToStandby]), cfg.Name)
}

// databaseURL replaces the host of a URL.
func (w *World) databaseURL(raw, primary, standby string) string {
	w.T.Helper()
	u, err := url.Parse(raw)
	require.NoError(w.T, err)
	u.Host = primary + "," + standby
	return u.String()
}

// Open returns a pool for queries of the test.
func (w *World) Open(databaseURL, name string) *sqlx.DB {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.T.Context(), WaitLimit)
	defer cancel()
	db, err := postgres.Open(ctx, postgres.Config{URL: databaseURL, MaxOpen: 4, ApplicationName: "keb-" + name, StatementTimeout: 5 * time.Second})
	require.NoError(w.T, err)
	return db
}

// Start starts the server of a node that was stopped.
func (w *World) Start(n *Node) {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.T.Context()), WaitLimit)
	defer cancel()
	var err error
	n.Server, err = pglocal.Start(ctx, n.cfg)
	require.NoErrorf(w.T, err, "start %s", n.Name)
	if n.Name == ToPostgres {
		w.Postgres = n.Server
	}
}

// Signal sends a signal to all processes of the server.
func (n *Node) Signal(s syscall.Signal) {
	for _, pid := range family(n.Server.PID()) {
		_ = syscall.Kill(pid, s) // some may have exited
	}
}

// Kill kills all processes of the server and waits for their end.
func (w *World) Kill(n *Node) {
	w.T.Helper()
	n.Signal(syscall.SIGKILL)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.T.Context()), WaitLimit)
	defer cancel()
	_ = n.Server.Stop(ctx) // it was killed
}

// Promote promotes the standby. It returns before the standby accepts writes. Primary is then the promoted server, and Standby the old
// primary, which Rejoin makes a standby.
func (w *World) Promote() {
	w.T.Helper()
	require.NoError(w.T, pgtest.Promote(w.T.Context(), w.Standby.cfg.DataDir))
	w.Primary, w.Standby = w.Standby, w.Primary
}

// Rejoin stops the old primary, rewinds it, and lets it follow the new one as its synchronous standby.
func (w *World) Rejoin() {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.T.Context(), WaitLimit)
	defer cancel()
	// After a crash, pg_rewind would run the recovery without the settings of the command line, and so without wal_log_hints.
	require.NoError(w.T, w.Standby.Server.Stop(ctx))
	require.NoError(w.T, pgtest.Rewind(w.T.Context(), w.Standby.cfg.DataDir, w.Primary.Server, w.Primary.cfg.DataDir))
	w.Start(w.Standby)
	w.Synchronize()
}

// Synchronize makes the commits of the primary wait for the standby, and returns when the standby is up to date.
func (w *World) Synchronize() {
	w.T.Helper()
	db := w.Open(w.Primary.Server.URL("keb"), "synchronize")
	defer func() { _ = db.Close() }()
	await := func(state string) {
		w.Await(fmt.Sprintf("%s to be a standby (%s)", w.Standby.Name, state), func() bool {
			var n int
			err := db.GetContext(w.T.Context(), &n, `SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = $1`, state)
			return err == nil && n == 1
		})
	}
	await("async")
	for _, statement := range []string{`ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`} {
		_, err := db.ExecContext(w.T.Context(), statement)
		require.NoError(w.T, err)
	}
	await("sync")
}

// IsReady reports whether every broker, orchestrator and worker is ready.
func (w *World) IsReady(ctx context.Context) bool {
	for _, name := range w.Names("broker-", "orchestrator-", "worker-") {
		if !isReady(ctx, w.Addr[name]) {
			return false
		}
	}
	return true
}

// removeNodes stops the servers of an installation with a standby.
func (w *World) removeNodes() {
	for _, n := range []*Node{w.Standby, w.Primary} {
		if n == nil || n.Server == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		n.Signal(syscall.SIGCONT)
		if err := n.Server.Stop(ctx); err != nil {
			w.T.Errorf("stop %s: %v", n.Name, err)
		}
		cancel()
	}
}
