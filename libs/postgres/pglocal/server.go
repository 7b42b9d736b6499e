package pglocal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/internal/flock"
	"github.com/kyma-project/keb/libs/postgres"
)

const (
	superuser    = "postgres"
	passwordFile = "keb.password"
	logFile      = "keb.log"
	// clusterName marks the command line of the servers that Start has started.
	clusterName = "cluster_name=keb"
	// startTries covers a free port that someone else took before the server did, and the last processes of a killed
	// server that still hold its shared memory.
	startTries = 20
	pollEvery  = 20 * time.Millisecond
	retryEvery = 250 * time.Millisecond
	// maxSocketPath is what fits into a socket address, with room for "/.s.PGSQL.65535".
	maxSocketPath = 90
)

// Config says where and how a server runs.
type Config struct {
	// DataDir is the folder of the cluster; it is created, with its parents, when missing. Required.
	DataDir string
	// Port is where it listens on 127.0.0.1; zero takes a free one.
	Port int
	// Durable turns on what keeps committed data through a crash of the machine. Without it the server is faster and
	// only good for tests.
	Durable bool
	// Settings are server settings over those of Durable, by name.
	Settings map[string]string
	// BinDir is the folder of the server binaries; empty means Find.
	BinDir string
	// Log is optional.
	Log *slog.Logger
}

// Server is a running PostgreSQL server. Its methods may be called at the same time.
type Server struct {
	dir      string
	binDir   string
	id       identity
	port     int
	password string
	socket   bool
	log      *slog.Logger
	lock     *flock.Lock

	pid    int
	exited chan struct{} // closed once the process has ended
	stop   sync.Mutex
}

// Start makes the cluster when there is none, starts the server and returns when it takes connections. A server that a
// killed process left behind in the folder is stopped first. ctx bounds the start only. Errors are one line: ErrNoBinaries,
// ErrPortInUse, *InUseError for a folder that belongs to a running process, or the server's own last words.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	if cfg.DataDir == "" {
		return nil, errors.New("start postgres: the data folder is not set")
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	// Folders we make on the way must let the server's user through.
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return nil, fmt.Errorf("start postgres: create data folder: %w", err)
	}
	if dir, err = realPath(dir); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, log: log, lock: lock}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Release())
		}
	}()
	if s.binDir, err = binariesFor(dir, cfg.BinDir); err != nil {
		return nil, err
	}
	if s.id, err = serverIdentity(dir); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	if s.id, err = s.id.enter(ctx, s.program("postgres"), filepath.Dir(dir), passCapabilities); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	if err := s.stopLeftover(ctx); err != nil {
		return nil, err
	}
	if err := s.makeCluster(ctx, cfg.Durable); err != nil {
		return nil, err
	}
	if err := s.start(ctx, cfg); err != nil {
		return nil, err
	}
	log.Info("postgres started", "pid", s.pid, "port", s.port, "data_dir", dir, "binaries", s.binDir)
	return s, nil
}

// realPath resolves links, so that one folder has one lock and one name in the server's command line. The folder itself
// may be missing.
func realPath(dir string) (string, error) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real, nil
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	return filepath.Join(parent, filepath.Base(dir)), err
}

func (s *Server) program(name string) string { return filepath.Join(s.binDir, name) }

func (s *Server) start(ctx context.Context, cfg Config) error {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for try := 1; ; try++ {
		port, err := choosePort(cfg.Port)
		if err != nil {
			return err
		}
		s.port = port
		err = s.run(ctx, cfg)
		if err == nil {
			return nil
		}
		again := strings.Contains(err.Error(), "shared memory block") ||
			(cfg.Port == 0 && strings.Contains(err.Error(), "could not create any TCP/IP sockets"))
		if !again || try == startTries || ctx.Err() != nil {
			return fmt.Errorf("start postgres in %s: %w", s.dir, err)
		}
		select {
		case <-ctx.Done():
		case <-retry.C:
		}
	}
}

func choosePort(want int) (int, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(want)))
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return 0, fmt.Errorf("start postgres: %w: 127.0.0.1:%d; stop the program that listens there, or choose another port", ErrPortInUse, want)
		}
		return 0, fmt.Errorf("start postgres: %w", err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	return port, ln.Close()
}

// run starts the process and waits until it takes connections or has ended.
func (s *Server) run(ctx context.Context, cfg Config) error {
	out, err := os.OpenFile(filepath.Join(s.dir, logFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the child has its own descriptor
	s.socket = len(s.dir) <= maxSocketPath
	cmd := s.id.command(context.WithoutCancel(ctx), s.program("postgres"), s.arguments(ctx, cfg)...)
	cmd.Stdout, cmd.Stderr = out, out

	started := make(chan error, 1)
	s.exited = make(chan struct{})
	// The kernel ties the child's death signal to the thread that made it, so this thread stays until the child has ended.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.pid = cmd.Process.Pid
	if err := s.awaitReady(ctx, cmd); err != nil {
		return err
	}
	return nil
}

func (s *Server) awaitReady(ctx context.Context, cmd *exec.Cmd) error {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case <-s.exited:
			return errors.New(lastWords(filepath.Join(s.dir, logFile)))
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGQUIT)
			<-s.exited
			return fmt.Errorf("gave up waiting for the server: %w", context.Cause(ctx))
		case <-poll.C:
			if p, ok := readPIDFile(s.dir); ok && p.pid == s.pid && p.ready {
				return nil
			}
		}
	}
}

// lastWords is the line of the server's log that says best why it ended.
func lastWords(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "the server ended without a log"
	}
	var last, fatal string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		last = line
		if i := strings.Index(line, "FATAL:"); i >= 0 && fatal == "" {
			fatal = strings.TrimSpace(line[i+len("FATAL:"):])
		}
	}
	switch {
	case fatal != "":
		return fatal
	case last != "":
		return last
	}
	return "the server ended without saying why"
}

// URL is the address of a database for libs/postgres, with the password. It is loopback TCP.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, s.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// SocketURL is the same over the socket in the data folder, which is faster and which only the owner of the folder and root
// can use; it is URL when the folder's path is too long for a socket.
func (s *Server) SocketURL(database string) string {
	if !s.socket {
		return s.URL(database)
	}
	q := url.Values{"host": {s.dir}, "port": {strconv.Itoa(s.port)}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.UserPassword(superuser, s.password), Path: "/" + database, RawQuery: q.Encode()}
	return u.String()
}

// CreateDatabase makes a database, as a copy of template when that is not empty; nobody may be connected to the template.
func (s *Server) CreateDatabase(ctx context.Context, name, template string) error {
	db, err := postgres.Open(ctx, postgres.Config{URL: s.URL("postgres"), MaxOpen: 1})
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return errors.Join(postgres.CreateDatabase(ctx, db, name, template), db.Close())
}

// EnsureDatabase makes a database unless it exists.
func (s *Server) EnsureDatabase(ctx context.Context, name string) error {
	db, err := postgres.Open(ctx, postgres.Config{URL: s.URL("postgres"), MaxOpen: 1})
	if err != nil {
		return fmt.Errorf("ensure database %s: %w", name, err)
	}
	return errors.Join(ensureDatabase(ctx, db, name), db.Close())
}

func ensureDatabase(ctx context.Context, db *sqlx.DB, name string) error {
	var exists bool
	if err := db.GetContext(ctx, &exists, `SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)`, name); err != nil {
		return fmt.Errorf("ensure database %s: %w", name, err)
	}
	if exists {
		return nil
	}
	return postgres.CreateDatabase(ctx, db, name, "")
}

// PID is the process id of the server.
func (s *Server) PID() int { return s.pid }

// Port is the TCP port the server listens on.
func (s *Server) Port() int { return s.port }

// Done is closed once the server's process has ended, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.exited }

// Stop ends the server: connections are cut, data is flushed, the folder is free for the next one. When ctx ends before that, the
// server is stopped at once and recovers at its next start. Stopping twice is harmless.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Lock()
	defer s.stop.Unlock()
	err := endProcess(ctx, s.pid, s.exited)
	return errors.Join(err, s.lock.Release())
}
