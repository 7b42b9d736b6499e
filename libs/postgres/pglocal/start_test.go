package pglocal

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
)

func TestStart_SecondStart_KeepsCluster(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	first := start(t, Config{DataDir: dir})
	require.NoError(t, first.EnsureDatabase(testContext(t), "keb"))
	_, err := open(t, first.URL("keb")).ExecContext(t.Context(), `CREATE TABLE kept ()`)
	require.NoError(t, err)
	stop(t, first)
	stop(t, first) // stopping twice has no effect

	second := start(t, Config{DataDir: dir})
	require.NoError(t, second.EnsureDatabase(testContext(t), "keb"))
	db := open(t, second.URL("keb"))
	if _, err := db.ExecContext(t.Context(), `SELECT FROM kept`); err != nil {
		t.Error(err)
	}
	require.NoError(t, db.Close())
	require.NoError(t, second.CreateDatabase(testContext(t), "copy", "keb"))
}

func TestServer_Password_IsRequired(t *testing.T) {
	t.Parallel()
	dir := readyDir(t)
	s := start(t, Config{DataDir: dir})
	_, err := postgres.Open(testContext(t), postgres.Config{
		URL: fmt.Sprintf("postgres://postgres:wrong@127.0.0.1:%d/postgres", s.Port()),
	})
	if err == nil || !strings.Contains(err.Error(), "password authentication failed") {
		t.Errorf("got %v", err)
	}
	db := open(t, s.URL("postgres"))
	for _, statement := range []string{
		`SELECT 'canary' FROM missing`, `CREATE TABLE u (t text PRIMARY KEY)`, `INSERT INTO u VALUES ('canary'), ('canary')`,
	} {
		_, _ = db.ExecContext(t.Context(), statement) // most of them fail, so that the server logs them
	}
	log, err := os.ReadFile(filepath.Join(dir, logFile))
	require.NoError(t, err)
	if !strings.Contains(string(log), "duplicate key") || strings.Contains(string(log), "canary") {
		t.Errorf("want the error and no value in the log:\n%s", log)
	}
}

func TestStart_Durable_SelectsSettings(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cfg  Config
		want map[string]string
	}{
		"durable": {Config{Durable: true}, map[string]string{
			"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "100",
			"shared_buffers": "256MB", "max_wal_size": "4GB", "checkpoint_timeout": "15min",
		}},
		"throwaway": {Config{}, map[string]string{"fsync": "off", "synchronous_commit": "off"}},
		"own settings count": {
			Config{Durable: true, Settings: map[string]string{"work_mem": "7MB", "fsync": "off"}},
			map[string]string{"work_mem": "7MB", "fsync": "off"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.cfg.DataDir = readyDir(t)
			s := start(t, tt.cfg)
			db := open(t, s.URL("postgres"))
			for setting, want := range tt.want {
				var got string
				require.NoError(t, db.GetContext(t.Context(), &got, `SELECT current_setting($1)`, setting))
				if got != want {
					t.Errorf("%s is %s, want %s", setting, got, want)
				}
			}
		})
	}
}

func TestStart_LongPath_Works(t *testing.T) {
	t.Parallel()
	s := start(t, Config{DataDir: filepath.Join(dataDir(t), strings.Repeat("long", 25))})
	open(t, s.URL("postgres"))
}

func TestStart_PortInUse_ReturnsErrPortInUse(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	port := ln.Addr().(*net.TCPAddr).Port
	dir := readyDir(t)
	_, err = Start(testContext(t), Config{DataDir: dir, Port: port})
	if !errors.Is(err, ErrPortInUse) || !strings.Contains(err.Error(), fmt.Sprintf("127.0.0.1:%d; stop", port)) {
		t.Errorf("got %v", err)
	}
	start(t, Config{DataDir: dir}) // the failed start has released the folder
}

func TestStart_ServerFails_ReturnsItsError(t *testing.T) {
	t.Parallel()
	_, err := Start(testContext(t), Config{DataDir: readyDir(t), Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), `unrecognized configuration parameter "no_such_setting"`) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestStart_ForeignFolder_IsNotChanged(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	file := filepath.Join(dir, "thesis.txt")
	require.NoError(t, os.WriteFile(file, []byte("important"), 0o600))
	_, err := Start(testContext(t), Config{DataDir: dir})
	if err == nil || !strings.Contains(err.Error(), "choose another") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
}

func TestStart_OtherVersion_IsNamed(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "PG_VERSION"), []byte("9\n"), 0o600))
	_, err := Start(testContext(t), Config{DataDir: dir})
	if err == nil || !strings.Contains(err.Error(), "was made by PostgreSQL 9") {
		t.Errorf("got %v", err)
	}
}

func TestStart_IncompleteCluster_IsReplaced(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir+".init", "base"), 0o700))
	start(t, Config{DataDir: dir})
	if _, err := os.Stat(dir + ".init"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the half made cluster is still there: %v", err)
	}
}

func TestStart_ForeignServer_ReturnsInUseError(t *testing.T) {
	t.Parallel()
	dir := readyDir(t)
	s := start(t, Config{DataDir: dir})
	stop(t, s)
	port, err := choosePort(0)
	require.NoError(t, err)
	foreign := s.id.command(testContext(t), s.program("postgres"), "-D", dir, "-p", fmt.Sprint(port), "-k", dir)
	require.NoError(t, foreign.Start())
	defer func(cmd *exec.Cmd) {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}(foreign)
	waitUntil(t, "the foreign server runs", func() bool { p, ok := readPIDFile(dir); return ok && p.ready })
	_, err = Start(testContext(t), Config{DataDir: dir})
	inUse, ok := errors.AsType[*InUseError](err)
	if !ok || !inUse.Foreign || inUse.PID != foreign.Process.Pid {
		t.Errorf("got %v, want the foreign server %d named", err, foreign.Process.Pid)
	}
}

func TestDone_ServerEnds_IsClosed(t *testing.T) {
	t.Parallel()
	s := start(t, Config{DataDir: readyDir(t)})
	select {
	case <-s.Done():
		t.Fatal("done while it runs")
	default:
	}
	require.NoError(t, endProcess(testContext(t), s.PID(), s.Done()))
	<-s.Done()
}

func TestStart_NoDataFolder_ReturnsError(t *testing.T) {
	t.Parallel()
	if _, err := Start(testContext(t), Config{}); err == nil || !strings.Contains(err.Error(), "data folder is not set") {
		t.Errorf("got %v", err)
	}
}
