//go:build linux

package chaos

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pglocal"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/lossyfs"
)

// server is Postgres on a disk that loses what was not synced.
type server struct {
	t    *testing.T
	disk *lossyfs.FS
	cfg  pglocal.Config
	pg   *pglocal.Server
	db   *sqlx.DB
}

func newServer(t *testing.T, strict bool) *server {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("FUSE is missing: %v", err)
	}
	dir := t.TempDir()
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) { //nolint:usetesting // the folder that all tests share
		require.NoError(t, os.Chmod(at, 0o755)) // Postgres runs as another user
	}
	disk, err := lossyfs.Mount(lossyfs.Config{Dir: dir, AllowOther: os.Geteuid() == 0, Strict: strict, SyncTime: syncTime})
	require.NoError(t, err)
	s := &server{t: t, disk: disk, cfg: pglocal.Config{DataDir: filepath.Join(dir, "data"), Durable: true}}
	t.Cleanup(func() {
		s.stop()
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start returns an error if the server does not start.
func (s *server) start() error {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	var err error
	if s.pg, err = pglocal.Start(ctx, s.cfg); err != nil {
		return err
	}
	s.db, err = postgres.Open(ctx, postgres.Config{URL: s.pg.URL("postgres"), MaxOpen: 1})
	return err
}

func (s *server) stop() {
	if s.db != nil {
		_ = s.db.Close() // the server may be gone
		s.db = nil
	}
	if s.pg != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = s.pg.Stop(ctx) // it may have been killed
		s.pg = nil
	}
}

func (s *server) exec(statement string, args ...any) {
	s.t.Helper()
	_, err := s.db.ExecContext(s.t.Context(), statement, args...)
	require.NoError(s.t, err)
}

// cut cuts the power, and mounts the disk again.
func (s *server) cut() {
	s.t.Helper()
	lossyfs.Cut(lossyfs.Damage{}, nil, s.disk)
	// Without their parent, the other processes of Postgres end by themselves.
	require.NoError(s.t, syscall.Kill(s.pg.PID(), syscall.SIGKILL))
	s.disk.Release()
	s.stop()
	require.NoError(s.t, s.disk.Restore(s.t.Context()))
}

// cutTransaction cuts the power under a transaction that is not committed.
func (s *server) cutTransaction() {
	s.t.Helper()
	tx, err := s.db.BeginTxx(s.t.Context(), nil)
	require.NoError(s.t, err)
	_, err = tx.ExecContext(s.t.Context(), `INSERT INTO kept SELECT -n FROM generate_series(1, 1000) AS n`)
	require.NoError(s.t, err)
	s.cut()
	_ = tx.Rollback() // the connection is lost
}

func TestPostgres_PowerCut_KeepsCommits(t *testing.T) {
	t.Parallel()
	s := newServer(t, false)
	require.NoError(t, s.start())
	s.exec(`CREATE TABLE kept (n int PRIMARY KEY)`)
	for round := range 3 {
		for i := range 100 {
			s.exec(`INSERT INTO kept VALUES ($1)`, round*100+i)
			if i == 50 {
				s.exec(`CHECKPOINT`)
			}
		}
		s.cutTransaction()
		require.NoErrorf(t, s.start(), "start after cut %d", round+1)
		var n, negative int
		require.NoError(t, s.db.GetContext(t.Context(), &n, `SELECT count(*) FROM kept WHERE n >= 0`))
		require.NoError(t, s.db.GetContext(t.Context(), &negative, `SELECT count(*) FROM kept WHERE n < 0`))
		if want := (round + 1) * 100; n != want || negative != 0 {
			t.Fatalf("after cut %d there are %d committed rows, want %d, and %d others, want none", round+1, n, want, negative)
		}
	}
}

// TestPostgres_PowerCutWithoutFsync_LosesCommits shows that the test above can fail.
func TestPostgres_PowerCutWithoutFsync_LosesCommits(t *testing.T) {
	t.Parallel()
	s := newServer(t, false)
	s.cfg.Settings = map[string]string{"fsync": "off"}
	require.NoError(t, s.start())
	s.exec(`CREATE TABLE kept (n int PRIMARY KEY)`)
	s.disk.Sync()
	for i := range 100 {
		s.exec(`INSERT INTO kept VALUES ($1)`, i)
	}
	s.cutTransaction()
	if err := s.start(); err != nil {
		t.Logf("Postgres does not start: %v", err)
		return
	}
	var n int
	require.NoError(t, s.db.GetContext(t.Context(), &n, `SELECT count(*) FROM kept`))
	if n == 100 {
		t.Error("all rows survived without fsync")
	}
}

func TestPostgres_PowerCutAfterFirstStart_KeepsPassword(t *testing.T) {
	t.Parallel()
	s := newServer(t, true)
	s.cfg.Port = testkit.Port(t)
	require.NoError(t, s.start())
	before := s.pg.URL("postgres")
	s.cut()
	require.NoError(t, s.start())
	if after := s.pg.URL("postgres"); after != before {
		t.Error("the cluster is a new one after the power cut")
	}
}
