package pglocal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
)

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(testContext(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func open(t *testing.T, url string) *sqlx.DB {
	t.Helper()
	db, err := postgres.Open(testContext(t), postgres.Config{URL: url})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// dataDir returns the path of a data folder that does not exist yet.
func dataDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "pg")
}

// cluster is a data folder that is created once for all tests, to save time.
var cluster struct {
	once sync.Once
	dir  string
	err  error
}

// readyDir returns a data folder that was started and stopped before.
func readyDir(t *testing.T) string {
	t.Helper()
	cluster.once.Do(func() {
		// t.TempDir would remove the folder after this test. TestMain removes it.
		if cluster.dir, cluster.err = os.MkdirTemp("", "keb-pglocal-"); cluster.err != nil { //nolint:usetesting // see above
			return
		}
		var s *Server
		if s, cluster.err = Start(testContext(t), Config{DataDir: filepath.Join(cluster.dir, "pg")}); cluster.err == nil {
			cluster.err = s.Stop(testContext(t))
		}
	})
	if cluster.err != nil {
		t.Fatal(cluster.err)
	}
	dir := dataDir(t)
	if out, err := exec.CommandContext(testContext(t), "cp", "-a", filepath.Join(cluster.dir, "pg"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// ownerProcess runs a server in a separate process and returns when it accepts connections.
func ownerProcess(t *testing.T, dir string) (owner *exec.Cmd, serverPID int, url string) {
	t.Helper()
	owner = exec.CommandContext(testContext(t), os.Args[0])
	owner.Env = append(os.Environ(), helperEnv+"="+dir)
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscanf(line, "ready %d %s", &serverPID, &url)
	require.NoErrorf(t, err, "the owner printed %q", line)
	return owner, serverPID, url
}

func kill(t *testing.T, owner *exec.Cmd) {
	t.Helper()
	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait() // reports the kill
}

func TestStart_ParentWasKilled_KeepsData(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	owner, _, url := ownerProcess(t, dir)
	db := open(t, url)
	_, err := db.ExecContext(t.Context(), `CREATE TABLE kept (n int); INSERT INTO kept VALUES (42)`)
	require.NoError(t, err)
	kill(t, owner)

	s := start(t, Config{DataDir: dir, Durable: true})
	var n int
	require.NoError(t, open(t, s.URL("postgres")).GetContext(t.Context(), &n, `SELECT n FROM kept`))
	if n != 42 {
		t.Errorf("got %d, want 42", n)
	}
}

func TestStart_LeftoverServer_IsStopped(t *testing.T) {
	t.Parallel()
	dir := readyDir(t)
	owner, serverPID, _ := ownerProcess(t, dir)
	// A stopped server does not handle the kernel's signal at its parent's end, so it still exists at the next start.
	require.NoError(t, syscall.Kill(serverPID, syscall.SIGSTOP))
	kill(t, owner)
	if got := inspect(serverPID, dir); got != processOurServer {
		t.Fatalf("the left over server is %v, want processOurServer", got)
	}
	require.NoError(t, syscall.Kill(serverPID, syscall.SIGCONT))
	s := start(t, Config{DataDir: dir, Durable: true})
	if s.PID() == serverPID {
		t.Errorf("the server left over still runs")
	}
}

func TestStart_ServerWasKilled_Recovers(t *testing.T) {
	t.Parallel()
	dir := readyDir(t)
	s := start(t, Config{DataDir: dir})
	require.NoError(t, syscall.Kill(s.PID(), syscall.SIGKILL))
	<-s.Done()
	stop(t, s)
	again := start(t, Config{DataDir: dir})
	open(t, again.URL("postgres"))
}

func TestStart_FolderInUse_ReturnsInUseError(t *testing.T) {
	t.Parallel()
	dir := readyDir(t)
	owner, serverPID, _ := ownerProcess(t, dir)
	t.Cleanup(func() {
		kill(t, owner)
		// The server ends with its parent, but writes to the folder until all its processes have ended.
		for inspect(serverPID, dir) == processOurServer || os.RemoveAll(dir) != nil {
			<-time.After(pollEvery)
		}
	})
	_, err := Start(testContext(t), Config{DataDir: dir})
	inUse, ok := errors.AsType[*InUseError](err)
	if !ok {
		t.Fatalf("got %v, want *InUseError", err)
	}
	if inUse.PID != owner.Process.Pid {
		t.Errorf("the error names process %d, want %d", inUse.PID, owner.Process.Pid)
	}
}

func TestStart_LinkToFolderInUse_ReturnsInUseError(t *testing.T) {
	t.Parallel()
	dir := readyDir(t)
	s := start(t, Config{DataDir: dir})
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(filepath.Dir(dir), link))
	_, err := Start(testContext(t), Config{DataDir: filepath.Join(link, filepath.Base(dir))})
	if inUse, ok := errors.AsType[*InUseError](err); !ok || inUse.PID != os.Getpid() {
		t.Errorf("got %v, want *InUseError of this process", err)
	}
	select {
	case <-s.Done():
		t.Error("the server was stopped")
	default:
	}
}

func TestStart_PIDFileOfOtherProcess_IsIgnored(t *testing.T) {
	t.Parallel()
	dir := readyDir(t)
	s := start(t, Config{DataDir: dir})
	content, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	require.NoError(t, err)
	stop(t, s)
	other := exec.CommandContext(testContext(t), "sleep", "60")
	require.NoError(t, other.Start())
	defer kill(t, other)
	stale := fmt.Appendf(nil, "%d\n%s", other.Process.Pid, content[len(fmt.Sprintf("%d\n", s.PID())):])
	require.NoError(t, os.WriteFile(filepath.Join(dir, "postmaster.pid"), stale, 0o600))
	require.NoError(t, s.id.give(filepath.Join(dir, "postmaster.pid")))
	start(t, Config{DataDir: dir})
	if err := syscall.Kill(other.Process.Pid, 0); err != nil {
		t.Errorf("the other process was hurt: %v", err)
	}
}

func TestServer_ParentEnds_Ends(t *testing.T) {
	t.Parallel()
	dir := readyDir(t)
	owner, serverPID, _ := ownerProcess(t, dir)
	kill(t, owner)
	waitUntil(t, "the end of the server", func() bool { return inspect(serverPID, dir) == processGone })
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for ctx := testContext(t); !ok(); {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: did not happen", what)
		case <-tick.C:
		}
	}
}
