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
	// clusterName marks the command line of servers that Start started.
	clusterName = "cluster_name=keb"
	// startTries allows for a free port that another program takes first, and for processes of a killed server that still hold its shared
	// memory.
	startTries = 20
	pollEvery  = 20 * time.Millisecond
	retryEvery = 250 * time.Millisecond
)

// Config describes a server.
type Config struct {
	// DataDir is the folder of the cluster. Start creates it and its parents if they are missing. Required.
	DataDir string
	// Port is the port on 127.0.0.1; zero selects a free one.
	Port int
	// Durable enables the settings that keep committed data after a crash of the machine. Without it, the server is faster and suitable
	// only for tests.
	Durable bool
	// Settings are server settings by name. They override those of Durable.
	Settings map[string]string
	// BinDir is the folder of the server binaries; empty means Find.
	BinDir string
	// Log is optional.
	Log *slog.Logger
}

// Server is a running PostgreSQL server. It is safe for concurrent use.
type Server struct {
	dir      string
	binDir   string
	id       identity
	port     int
	password string
	log      *slog.Logger
	lock     *flock.Lock

	pid    int
	exited chan struct{} // closed once the process has ended
	stop   sync.Mutex
}

// Start creates the cluster if there is none, starts the server and returns when it accepts connections. It first stops a server that
// a killed process left in the folder. ctx limits only the start. Errors are one line: ErrNoBinaries, ErrPortInUse, *InUseError for a
// folder that a running process uses, or the last error of the server.
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
	// The server's user must be able to enter the created folders.
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

// realPath resolves links, so that a folder has only one lock and one name in the server's command line. The folder itself may be
// missing.
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

// run starts the process and waits until it accepts connections or has ended.
func (s *Server) run(ctx context.Context, cfg Config) error {
	out, err := os.OpenFile(filepath.Join(s.dir, logFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the child has its own file descriptor
	cmd := s.id.command(context.WithoutCancel(ctx), s.program("postgres"), s.arguments(ctx, cfg)...)
	cmd.Stdout, cmd.Stderr = out, out

	started := make(chan error, 1)
	s.exited = make(chan struct{})
	// The kernel ties the child's death signal to the thread that created it, so this thread stays until the child has ended.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log contains the reason
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

// lastWords returns the line of the server's log that describes best why it ended.
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
		if _, after, ok := strings.Cut(line, "FATAL:"); ok && fatal == "" {
			fatal = strings.TrimSpace(after)
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

// URL returns the address of a database, with the password. It uses TCP on loopback.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, s.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// CreateDatabase creates a database, as a copy of template unless template is empty. The template must have no connections.
func (s *Server) CreateDatabase(ctx context.Context, name, template string) error {
	db, err := postgres.Open(ctx, postgres.Config{URL: s.URL("postgres"), MaxOpen: 1})
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return errors.Join(postgres.CreateDatabase(ctx, db, name, template), db.Close())
}

// EnsureDatabase creates a database unless it exists.
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

// PID returns the process id of the server.
func (s *Server) PID() int { return s.pid }

// Port returns the TCP port of the server.
func (s *Server) Port() int { return s.port }

// Done is closed when the server's process has ended, for any reason.
func (s *Server) Done() <-chan struct{} { return s.exited }

// Stop stops the server: it closes connections, flushes data and frees the folder. If ctx ends before that, the server stops immediately
// and recovers at its next start. Stop is idempotent.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Lock()
	defer s.stop.Unlock()
	err := endProcess(ctx, s.pid, s.exited)
	return errors.Join(err, s.lock.Release())
}
